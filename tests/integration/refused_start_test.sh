#!/bin/bash
# A process refuses bad input before it serves or calls: one line that names the file and the fault, exit status 2.
source tests/integration/real_cluster.sh

TLS=$TEST_TMPDIR/tls
deploy/certificates.sh "$TLS"
mkdir -m 700 "$TEST_TMPDIR/data"

# refused FAULT COMMAND...
refused() {
  local fault=$1 said status=0
  shift
  said=$(timeout 30 "$@" 2>&1) || status=$?
  [[ $status = 2 && $said = *"$fault"* && $said != *$'\n'* ]] || fail "$* ended with $status and said: $said; expected: $fault"
}

# refused_programs FAULT CERTIFICATE KEY: every program refuses them.
refused_programs() {
  local fault=$1 crt=$2 key=$3
  local files=(--tls-ca-file "$TLS/ca.crt" --tls-certificate-file "$crt" --tls-private-key-file "$key")
  refused "kaon-shard: $fault" "$KAON_SHARD" --data-dir "$TEST_TMPDIR/data" "${files[@]}"
  refused "kaon-coordinator: $fault" "$KAON_COORDINATOR" --shards 127.0.0.1:9 "${files[@]}"
  refused "kaonctl: $fault" env KAON_CERT="$crt" KAON_KEY="$key" "$KAONCTL" --endpoints 127.0.0.1:9 --tls-dir "$TLS" status
  refused "kaon-train: $fault" env KAON_CA="$TLS/ca.crt" KAON_CERT="$crt" KAON_KEY="$key" "$KAON_TRAIN" --connect 127.0.0.1:9
}

refused_programs "tls private key file '$TLS/admin.key' is not the key of" "$TLS/worker-0.crt" "$TLS/admin.key"
refused_programs "tls certificate file '$TLS/admin.key' holds no PEM certificate" "$TLS/admin.key" "$TLS/admin.key"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=self -keyout "$TLS/self.key" -out "$TLS/self.crt" 2>/dev/null
refused_programs "tls certificate file '$TLS/self.crt' is not good for ca file '$TLS/ca.crt'" "$TLS/self.crt" "$TLS/self.key"
deploy/certificates.sh "$TLS" --extra reader=reader
refused_programs "tls certificate file '$TLS/reader.crt' is for role reader, must be for " "$TLS/reader.crt" "$TLS/reader.key"
chmod 0644 "$TLS/reader.key"
refused_programs "tls private key file '$TLS/reader.key' has mode 0644" "$TLS/reader.crt" "$TLS/reader.key"

LIMITED='ulimit "$1" 204800; shift; exec "$@"'
for limit in "-v address space (ulimit -v)" "-d data (ulimit -d)"; do
  fault="the limit of ${limit#* } is 204800 KiB, must be at least"
  refused "kaon-shard: $fault 5046272:" bash -c "$LIMITED" - "${limit%% *}" "$KAON_SHARD" --data-dir "$TEST_TMPDIR/data"
  refused "kaon-coordinator: $fault 786432:" bash -c "$LIMITED" - "${limit%% *}" "$KAON_COORDINATOR" --shards 127.0.0.1:9
done
finish
