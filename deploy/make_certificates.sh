#!/bin/bash
# Makes the certificates of one cluster: a throw-away CA and one certificate per role.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/make_certificates.sh DIR [--workers N] [--job NAME] [--host HOST]... [--extra NAME=ROLE[/JOB[/RANK]]]...

Writes PEM files into DIR (created with mode 0700; keys have mode 0600):
  ca.crt                       what every party trusts
  coordinator.crt, .key        server and client
  shard.crt, .key              server
  admin.crt, .key              client: kaonctl
  worker-0.crt, .key ...       client: one per rank
The CA's own key is not kept: nobody can add a certificate later. Everything expires after 24 hours.

  --workers N     ranks 0 .. N-1 (default 2)
  --job NAME      job the worker certificates are bound to (default kaon-train)
  --host HOST     another DNS name or IP address the servers are reached by; 127.0.0.1, ::1 and localhost always are
  --extra N=R     one more client certificate N.crt with role path R, for example reader=reader
TEXT
}

die() {
  echo "make_certificates.sh: $*" >&2
  exit 2
}

dir=
workers=2
job=kaon-train
names=DNS:localhost,IP:127.0.0.1,IP:::1
extras=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --workers) workers=${2:?--workers needs a number}; shift ;;
    --job) job=${2:?--job needs a name}; shift ;;
    --host)
      : "${2:?--host needs a host}"
      if [[ $2 =~ ^[0-9.]+$ || $2 == *:* ]]; then names+=",IP:$2"; else names+=",DNS:$2"; fi
      shift
      ;;
    --extra) extras+=("${2:?--extra needs NAME=ROLE}"); shift ;;
    -*) die "unknown option $1; see --help" ;;
    *) [ -z "$dir" ] || die "one directory expected, got $dir and $1"; dir=$1 ;;
  esac
  shift
done
[ -n "$dir" ] || die "no directory given; see --help"
[[ $workers =~ ^[0-9]+$ ]] || die "--workers $workers is not a number"
[[ $job =~ ^[a-z0-9-]{1,63}$ ]] || die "--job $job does not fit [a-z0-9-]{1,63}"
command -v openssl >/dev/null || die "openssl is not installed; see deploy/install_packages.sh"

umask 077
mkdir -p "$dir"
chmod 700 "$dir"
work=$(mktemp -d "$dir/.making.XXXXXX")
trap 'rm -rf "$work"' EXIT

# quiet COMMAND...: shows what a command said only if it failed.
quiet() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "failed: $*"; }
}

# issue NAME ROLE_PATH USAGE NAMES: NAME.key and NAME.crt in the working directory.
issue() {
  local name=$1 path=$2 usage=$3 san=$4
  cat >"$work/$name.cnf" <<TEXT
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $usage
subjectAltName = URI:spiffe://kaon.local/kaon/$path${san:+,$san}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
TEXT
  quiet openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -subj "/O=Kaon/CN=$name" -keyout "$work/$name.key" -out "$work/$name.csr"
  quiet openssl x509 -req -in "$work/$name.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
    -set_serial "0x00$(openssl rand -hex 15)" -days 1 -sha256 -extfile "$work/$name.cnf" \
    -out "$work/$name.crt"
  mv "$work/$name.key" "$work/$name.crt" "$dir/"
}

# The CA's subject is unique, so that certificates of another run never look like its own.
quiet openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -sha256 \
  -subj "/O=Kaon/CN=Kaon CA $(openssl rand -hex 8)" \
  -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
  -addext "keyUsage=critical,keyCertSign,cRLSign" \
  -keyout "$work/ca.key" -out "$work/ca.crt"

issue coordinator coordinator serverAuth,clientAuth "$names"
issue shard shard serverAuth "$names"
issue admin admin clientAuth ""
for ((rank = 0; rank < workers; rank++)); do
  issue "worker-$rank" "worker/$job/$rank" clientAuth ""
done
for extra in ${extras[@]+"${extras[@]}"}; do
  [[ $extra == *=* ]] || die "--extra $extra is not NAME=ROLE"
  issue "${extra%%=*}" "${extra#*=}" clientAuth ""
done
mv "$work/ca.crt" "$dir/"
