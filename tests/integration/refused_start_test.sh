#!/bin/bash
# A process refuses bad input before it serves or calls: one line that names the file and the fault, exit status 2.
source tests/integration/real_cluster.sh

TLS=$TEST_TMPDIR/tls
deploy/certificates.sh "$TLS"
mkdir -m 700 "$TEST_TMPDIR/data"

# refused FAULT COMMAND...
refused() {
  local fault=$1 status=0
  shift
  SAID=$(timeout 30 "$@" 2>&1) || status=$?
  [[ $status = 2 && $SAID = *"$fault"* && $SAID != *$'\n'* ]] || fail "$* ended with $status and said: $SAID; expected: $fault"
}

# refused_start FAULT COMMAND...: refused by a start, and by --check-config with the same words.
refused_start() {
  refused "$@"
  local said=$SAID
  refused "$@" --check-config
  [ "$said" = "$SAID" ] || fail "a start says: $said; --check-config says: $SAID"
}

# refused_programs FAULT CERTIFICATE KEY [but_kaonctl]: every program refuses them, or every one but kaonctl.
refused_programs() {
  local fault=$1 crt=$2 key=$3
  local files=(--tls-ca-file "$TLS/ca.crt" --tls-certificate-file "$crt" --tls-private-key-file "$key")
  refused_start "kaon-shard: $fault" "$KAON_SHARD" --data-dir "$TEST_TMPDIR/data" "${files[@]}"
  refused_start "kaon-coordinator: $fault" "$KAON_COORDINATOR" --shards 127.0.0.1:9 "${files[@]}"
  [ -n "${4:-}" ] || refused "kaonctl: $fault" env KAON_CERT="$crt" KAON_KEY="$key" "$KAONCTL" --endpoints 127.0.0.1:9 --tls-dir "$TLS" status
  refused "kaon-train: $fault" env KAON_CA="$TLS/ca.crt" KAON_CERT="$crt" KAON_KEY="$key" "$KAON_TRAIN" --connect 127.0.0.1:9
}

refused_programs "tls private key file '$TLS/admin.key' is not the key of" "$TLS/worker-0.crt" "$TLS/admin.key"
refused_programs "tls certificate file '$TLS/admin.key' holds no PEM certificate" "$TLS/admin.key" "$TLS/admin.key"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=self -keyout "$TLS/self.key" -out "$TLS/self.crt" 2>/dev/null
refused_programs "tls certificate file '$TLS/self.crt' is not good for ca file '$TLS/ca.crt'" "$TLS/self.crt" "$TLS/self.key"
deploy/certificates.sh "$TLS" --extra reader=reader
refused_programs "tls certificate file '$TLS/reader.crt' is for role reader, must be for " "$TLS/reader.crt" "$TLS/reader.key" but_kaonctl
refused "kaonctl: tls certificate file '$TLS/worker-0.crt' is for role worker" \
  env KAON_CERT="$TLS/worker-0.crt" KAON_KEY="$TLS/worker-0.key" "$KAONCTL" --endpoints 127.0.0.1:9 --tls-dir "$TLS" status
chmod 0644 "$TLS/reader.key"
refused_programs "tls private key file '$TLS/reader.key' has mode 0644" "$TLS/reader.crt" "$TLS/reader.key"

# expiring NAME FROM TO: a coordinator's and shard's certificate of a CA of its own, valid between two times.
expiring() {
  local into=$TEST_TMPDIR/$1 role
  mkdir -m 700 "$into"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" -keyout "$into/ca.key" -out "$into/ca.crt" 2>/dev/null
  touch "$into/index"
  printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s/index\nnew_certs_dir=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\n' \
    "$into" "$into" >"$into/ca.cnf"
  for role in shard coordinator; do
    printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=URI:spiffe://kaon.local/kaon/%s\n' "$role" >"$into/$role.cnf"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$role" -keyout "$into/$role.key" \
      -out "$into/$role.csr" 2>/dev/null
    openssl ca -batch -config "$into/ca.cnf" -startdate "$2" -enddate "$3" -cert "$into/ca.crt" -keyfile "$into/ca.key" \
      -extfile "$into/$role.cnf" -in "$into/$role.csr" -out "$into/$role.crt" -notext 2>"$into/log" || { cat "$into/log"; exit 1; }
    chmod 600 "$into/$role.key"
  done
}

# files_of DIR ROLE [CA]
files_of() { echo --tls-ca-file "${3:-$1/ca.crt}" --tls-certificate-file "$1/$2.crt" --tls-private-key-file "$1/$2.key"; }

expiring past 200101000000Z 210101000000Z
expiring future 20990101000000Z 21000101000000Z
for ending in "past:expired on Jan  1 00:00:00 2021 GMT" "future:is not valid before Jan  1 00:00:00 2099 GMT"; do
  into=$TEST_TMPDIR/${ending%%:*}
  # shellcheck disable=SC2046
  refused_start "kaon-shard: tls certificate file '$into/shard.crt' ${ending#*:}" "$KAON_SHARD" --data-dir "$TEST_TMPDIR/data" \
    $(files_of "$into" shard)
  # shellcheck disable=SC2046
  refused_start "kaon-coordinator: tls certificate file '$into/coordinator.crt' ${ending#*:}" "$KAON_COORDINATOR" \
    --shards 127.0.0.1:9 $(files_of "$into" coordinator)
done

# Each bad configuration: the fault, then options. DATA stands for a directory that a shard could use.
mkdir -m 755 "$TEST_TMPDIR/open"
touch "$TEST_TMPDIR/file"
while IFS='|' read -r fault options; do
  # shellcheck disable=SC2086
  refused_start "kaon-shard: $fault" "$KAON_SHARD" ${options//DATA/$TEST_TMPDIR/data}
done <<TABLE
data_dir is empty|
creating data_dir /nowhere/data: No such file or directory|--data-dir /nowhere/data
data_dir $TEST_TMPDIR/open has mode 0755, expecting 0700|--data-dir $TEST_TMPDIR/open
data_dir $TEST_TMPDIR/file is not a directory|--data-dir $TEST_TMPDIR/file
listen is "nowhere", must be host:port|--data-dir DATA --listen nowhere
listen 0.0.0.0:0 is not a loopback address: set tls.ca_file|--data-dir DATA --listen 0.0.0.0:0
cannot listen on 192.0.2.1:7000: Cannot assign|--data-dir DATA --listen 192.0.2.1:7000 $(files_of "$TLS" shard)
tls: 1 of the files ca, certificate and private key named|--data-dir DATA --tls-ca-file $TLS/ca.crt
tls ca file '/nowhere/ca.crt' cannot be read|--data-dir DATA $(files_of "$TLS" shard /nowhere/ca.crt)
checkpoint_dir '/nowhere': No such file or directory, must be|--data-dir DATA --checkpoint-dir /nowhere
checkpoint_dir '$TEST_TMPDIR/file': Not a directory, must be|--data-dir DATA --checkpoint-dir $TEST_TMPDIR/file
nvme_dirs '/nowhere': No such file or directory, must be|--data-dir DATA --nvme-dirs /nowhere --nvme-bytes 1048576
nvme_bytes is 0, must be 1048576 .. |--data-dir DATA --nvme-dirs $TEST_TMPDIR
nvme_bytes is 4096, must be 1048576 .. |--data-dir DATA --nvme-dirs $TEST_TMPDIR --nvme-bytes 4096
nvme_bytes is 1048576, must be 0 without nvme_dirs|--data-dir DATA --nvme-bytes 1048576
nvme_staging_bytes is 4096, must be 0 without nvme_dirs|--data-dir DATA --nvme-staging-bytes 4096
nvme_io is "auto", must be empty without nvme_dirs|--data-dir DATA --nvme-io auto
nvme_io is "aio", must be threads, io_uring or auto|--data-dir DATA --nvme-dirs $TEST_TMPDIR --nvme-bytes 1048576 --nvme-io aio
host_memory_bytes is 67108864, must be more than |--data-dir DATA --nvme-dirs $TEST_TMPDIR --nvme-bytes 1048576 --host-memory-bytes 67108864 --nvme-staging-bytes 67108864
shm_dir '/nowhere': No such file or directory, must be|--data-dir DATA --shm-dir /nowhere
directory of port_file '/nowhere/': No such file|--data-dir DATA --port-file /nowhere/port
durability is "perhaps", must be|--data-dir DATA --durability perhaps
threads is 257, must be 0 .. 256|--data-dir DATA --threads 257
device_memory_bytes is 1048576, must be 0|--data-dir DATA --device-memory-bytes 1048576
|--data-dir DATA --gemm none
isa: is "neon", must be|--data-dir DATA --isa neon
|--data-dir DATA --backend missing
TABLE
while IFS='|' read -r fault options; do
  # shellcheck disable=SC2086
  refused_start "kaon-coordinator: $fault" "$KAON_COORDINATOR" $options
done <<TABLE
length of shards is 0, must be 1 .. 1024|
advertise is empty, must be|--shards 127.0.0.1:9 --listen 0.0.0.0:0
listen 0.0.0.0:0 is not a loopback address: set tls.ca_file|--shards 127.0.0.1:9 --listen 0.0.0.0:0 --advertise 10.0.0.1:1
cannot listen on 192.0.2.1:7000: Cannot assign|--shards 127.0.0.1:9 --listen 192.0.2.1:7000 $(files_of "$TLS" coordinator)
address 10.0.0.1:9 is not loopback: certificates are required|--shards 10.0.0.1:9
tls ca file '/nowhere/ca.crt' cannot be read|--shards 127.0.0.1:9 $(files_of "$TLS" coordinator /nowhere/ca.crt)
checkpoint_dir '/nowhere': No such file or directory, must be|--shards 127.0.0.1:9 --checkpoint-dir /nowhere
directory of port_file '/nowhere/': No such file|--shards 127.0.0.1:9 --port-file /nowhere/port
TABLE

# A check leaves nothing behind: neither a data_dir nor a file.
"$KAON_SHARD" --check-config --data-dir "$TEST_TMPDIR/fresh" --port-file "$TEST_TMPDIR/port" || fail "a good configuration is refused"
[[ ! -e $TEST_TMPDIR/fresh && ! -e $TEST_TMPDIR/port ]] || fail "--check-config wrote something"

LIMITED='ulimit "$1" 204800; shift; exec "$@"'
for limit in "-v address space (ulimit -v)" "-d data (ulimit -d)"; do
  fault="the limit of ${limit#* } is 204800 KiB, must be at least"
  refused_start "kaon-shard: $fault 5046272:" bash -c "$LIMITED" - "${limit%% *}" "$KAON_SHARD" --data-dir "$TEST_TMPDIR/data"
  refused_start "kaon-coordinator: $fault 786432:" bash -c "$LIMITED" - "${limit%% *}" "$KAON_COORDINATOR" --shards 127.0.0.1:9
done
finish
