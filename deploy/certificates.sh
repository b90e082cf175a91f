#!/bin/bash
# Makes the certificates of one cluster and shows when they expire.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/certificates.sh DIR [--workers N|any] [--job NAME] [--host HOST]... [--days N] [--ca-dir CA]
                              [--domain NAME]
                              [--role [NAME=]ROLE[/JOB[/RANK]]]... [--extra NAME=ROLE[/JOB[/RANK]]]...
       deploy/certificates.sh show DIR

Writes PEM files into DIR (created with mode 0700; keys have mode 0600):
  ca.crt                       what every party trusts
  coordinator.crt, .key        server and client
  shard.crt, .key              server
  admin.crt, .key              client: kaonctl
  worker-0.crt, .key ...       client: one per rank

  --workers N     ranks 0 .. N-1 (default 2); any: one worker.crt instead, for any job and any rank
  --job NAME      job the worker certificates are bound to (default kaon-train)
  --host HOST     another DNS name or IP address the servers are reached by; 127.0.0.1, ::1 and localhost always are
  --days N        life of the certificates, 1 .. 3650 (default 1)
  --domain NAME   trust domain (default kaon.local): servers accept certificates of their own domain only
  --ca-dir CA     keep the CA's ca.crt and ca.key in CA, for 3650 days, and use them the next time; without it the CA's
                  key is not kept: nobody can add a certificate later
  --role R        only certificates of these roles, R.crt or NAME.crt: coordinator, shard, admin, reader, checkpointer,
                  worker, worker/JOB, worker/JOB/RANK
  --extra N=R     one more client certificate N.crt with role path R, for example reader=reader

show lists the certificates of DIR: name, role path, hosts, expiry (UTC). Its exit status is 1 if one has expired.
TEXT
}

die() {
  echo "certificates.sh: $*" >&2
  exit 2
}

# expiry FILE: UTC, as in RFC 3339.
expiry() {
  local end
  end=$(openssl x509 -in "$1" -noout -enddate -dateopt iso_8601) || die "$1 is no certificate"
  end=${end#notAfter=}
  echo "${end/ /T}"
}

show() {
  local file name uri hosts word state=0
  [ $# -eq 1 ] || die "show takes one directory; see --help"
  compgen -G "$1/*.crt" >/dev/null || die "$1 has no .crt file"
  for file in "$1"/*.crt; do
    uri=- hosts=
    for word in $(openssl x509 -in "$file" -noout -ext subjectAltName 2>/dev/null | tr -d ' ' | tr ',' '\n'); do
      case "$word" in
        URI:spiffe://*/kaon/*) uri=${word#*/kaon/} ;;
        DNS:*) hosts+=${hosts:+,}${word#DNS:} ;;
        IPAddress:*) hosts+=${hosts:+,}${word#IPAddress:} ;;
      esac
    done
    name=$(basename "$file" .crt)
    word=$(expiry "$file")
    if ! openssl x509 -in "$file" -noout -checkend 0 >/dev/null; then
      word+=" (expired)"
      state=1
    fi
    printf '%-16s %-24s %-40s %s\n' "$name" "$uri" "${hosts:--}" "$word"
  done
  exit $state
}

dir=
workers=2
job=kaon-train
names=DNS:localhost,IP:127.0.0.1,IP:::1
days=1
ca_dir=
domain=kaon.local
roles=()
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
    --days) days=${2:?--days needs a number}; shift ;;
    --domain) domain=${2:?--domain needs a name}; shift ;;
    --ca-dir) ca_dir=${2:?--ca-dir needs a directory}; shift ;;
    --role) roles+=("${2:?--role needs ROLE or NAME=ROLE}"); shift ;;
    --extra) extras+=("${2:?--extra needs NAME=ROLE}"); shift ;;
    -*) die "unknown option $1; see --help" ;;
    show) command -v openssl >/dev/null && shift && show "$@" ;;
    *) [ -z "$dir" ] || die "one directory expected, got $dir and $1"; dir=$1 ;;
  esac
  shift
done
[ -n "$dir" ] || die "no directory given; see --help"
[[ $workers =~ ^([0-9]+|any)$ ]] || die "--workers $workers is neither a number nor any"
[[ $job =~ ^[a-z0-9-]{1,63}$ ]] || die "--job $job does not fit [a-z0-9-]{1,63}"
[[ $domain =~ ^[a-z0-9._-]{1,253}$ ]] || die "--domain $domain does not fit [a-z0-9._-]{1,253}"
[[ $days =~ ^[1-9][0-9]{0,3}$ && $days -le 3650 ]] || die "--days $days is not 1 .. 3650"
for role in ${roles[@]+"${roles[@]}"}; do
  [[ ${role#*=} =~ ^(coordinator|shard|admin|reader|checkpointer|worker(/[a-z0-9-]{1,63}(/(0|[1-9][0-9]*))?)?)$ ]] ||
    die "--role $role is none of coordinator, shard, admin, reader, checkpointer, worker[/JOB[/RANK]]"
  [[ $role == *=* || $role != */* ]] || die "--role $role needs a name: --role NAME=$role"
  [[ $role != *=* || ${role%%=*} =~ ^[A-Za-z0-9._-]+$ ]] || die "--role $role: ${role%%=*} is no file name"
done
for extra in ${extras[@]+"${extras[@]}"}; do
  [[ $extra == *=* ]] || die "--extra $extra is not NAME=ROLE"
done
command -v openssl >/dev/null || die "openssl is not installed; see deploy/install_packages.sh"

[ ${#roles[@]} -eq 0 ] || [ -n "$ca_dir" ] || [ ! -e "$dir/ca.crt" ] ||
  die "$dir has certificates of a CA that was not kept: give --ca-dir, or another folder for --role"
umask 077
mkdir -p "$dir"
chmod 700 "$dir"
work=$(mktemp -d "$dir/.making.XXXXXX")
trap 'rm -rf "$work"' EXIT

# quiet COMMAND...: shows what a command said only if it failed.
quiet() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "failed: $*"; }
}

# make_ca DAYS: ca.crt and ca.key in the working directory. The subject is unique, so that certificates of another run
# never look like those of this CA.
make_ca() {
  quiet openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$1" -sha256 \
    -subj "/O=Kaon/CN=Kaon CA $(openssl rand -hex 8)" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$work/ca.key" -out "$work/ca.crt"
}

find_ca() {
  if [ -z "$ca_dir" ]; then
    make_ca "$days"
  elif [ -e "$ca_dir/ca.crt" ] || [ -e "$ca_dir/ca.key" ]; then
    cp "$ca_dir/ca.crt" "$ca_dir/ca.key" "$work/" || die "$ca_dir needs both ca.crt and ca.key"
    openssl x509 -in "$work/ca.crt" -noout -checkend $((days * 86400)) >/dev/null ||
      die "$ca_dir/ca.crt expires at $(expiry "$work/ca.crt"), before certificates of --days $days would"
  else
    make_ca 3650
    mkdir -p "$ca_dir"
    cp "$work/ca.crt" "$work/ca.key" "$ca_dir/"
  fi
}

# issue NAME ROLE_PATH USAGE NAMES: NAME.key and NAME.crt in DIR.
issue() {
  local name=$1 path=$2 usage=$3 san=$4
  cat >"$work/$name.cnf" <<TEXT
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $usage
subjectAltName = URI:spiffe://$domain/kaon/$path${san:+,$san}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
TEXT
  quiet openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -subj "/O=Kaon/CN=$name" -keyout "$work/$name.key" -out "$work/$name.csr"
  quiet openssl x509 -req -in "$work/$name.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
    -set_serial "0x00$(openssl rand -hex 15)" -days "$days" -sha256 -extfile "$work/$name.cnf" \
    -out "$work/$name.crt"
  mv "$work/$name.key" "$work/$name.crt" "$dir/"
}

# issue_role NAME ROLE_PATH: with the uses and host names of that role.
issue_role() {
  case "$2" in
    coordinator) issue "$1" "$2" serverAuth,clientAuth "$names" ;;
    shard) issue "$1" "$2" serverAuth "$names" ;;
    *) issue "$1" "$2" clientAuth "" ;;
  esac
}

find_ca
if [ ${#roles[@]} -eq 0 ]; then
  roles=(coordinator shard admin)
  if [ "$workers" = any ]; then
    roles+=(worker)
  else
    for ((rank = 0; rank < workers; rank++)); do roles+=("worker-$rank=worker/$job/$rank"); done
  fi
fi
for role in "${roles[@]}"; do issue_role "${role%%=*}" "${role#*=}"; done
for extra in ${extras[@]+"${extras[@]}"}; do issue "${extra%%=*}" "${extra#*=}" clientAuth ""; done
mv "$work/ca.crt" "$dir/"
echo "certificates in $dir expire at $(expiry "$dir/${roles[-1]%%=*}.crt")"
