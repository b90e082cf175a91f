#!/bin/bash
# Usage: runbook_test.sh ENTRY. Starts the cluster of docs/operating.md, causes the accident of that entry of
# docs/runbook.md, executes the commands of the entry, and checks what they led to.
source tests/integration/page_commands.sh

home() { echo "$work/home/${ADDRESS[$1]}/kaon"; }

# prints PATTERN COMMAND...: on admin, repeated until its output has the pattern.
prints() {
  local pattern=$1 deadline=$((SECONDS + 60))
  shift
  until admin_does "$@" >"$work/seen.log" 2>&1; grep -qE -- "$pattern" "$work/seen.log"; do
    [ $SECONDS -lt $deadline ] || fail "$* does not print: $pattern"
    sleep 0.2
  done
}

# trains RANK STEPS: a trainer of two in the background.
trains() {
  echo "exec kaon-train --workers 2 --rank $1 --steps $2 --batch-size 96 --hidden 48" >"$work/train-$1"
  start admin "trainer-$1" "$work/train-$1"
}

# expire MACHINE NAME...: replaces certificates of the machine by expired ones of the same CA and key.
expire() {
  local ca tls name
  ca=$(home admin)/ca tls=$(home "$1")/tls
  shift
  touch "$work/index"
  printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nnew_certs_dir=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\n' \
    "$work/index" "$work" >"$work/ca.cnf"
  for name in "$@"; do
    openssl req -new -key "$tls/$name.key" -subj "/CN=$name" -out "$work/$name.csr"
    printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=URI:spiffe://kaon.local/kaon/%s,IP:10.77.0.1,IP:10.77.0.2,IP:10.77.0.3\n' \
      "$name" >"$work/$name.cnf"
    openssl ca -batch -config "$work/ca.cnf" -startdate 200101000000Z -enddate 210101000000Z -cert "$ca/ca.crt" \
      -keyfile "$ca/ca.key" -extfile "$work/$name.cnf" -in "$work/$name.csr" -out "$work/$name.crt" -notext \
      2>"$work/openssl.log" || fail "openssl ca: $(cat "$work/openssl.log")"
    cp "$work/$name.crt" "$tls/$name.crt"
  done
}

certificate_expires() {
  local node
  for node in node-1 node-2 node-3; do expire $node shard; done
  expire node-1 coordinator
  expire admin admin
  stop node-2 shard TERM
  # What is said: by a server that starts, by a client with an expired certificate, by one that calls such a server.
  before_block() {
    case "$1" in
      2) said "kaon-shard: tls certificate file 'tls/shard.crt' expired on Jan  1 00:00:00 2021 GMT" ;;
      3) said "kaonctl: tls certificate file '.*admin.crt' expired on Jan  1 00:00:00 2021 GMT" ;;
    esac
  }
}

# both_train: two trainers that never end, each a process. They take steps when this returns.
both_train() {
  trains 0 1000000
  trains 1 1000000
  steps_after 20
}

# steps_after STEP: the job takes a step after that one.
steps_after() {
  local deadline=$((SECONDS + 60)) step
  until step=$(admin_does kaonctl -o json status | grep -oP '^  "applied_step": \K[0-9]+') && [ "$step" -gt "$1" ]; do
    [ $SECONDS -lt $deadline ] || fail "no step after step $1"
    sleep 0.2
  done
  reached=$step
}

disk_fills() {
  both_train
  cat /dev/zero >"$(home node-2)/data/ballast" 2>/dev/null || true
  before_block() {
    case "$1" in
      1) prints 'NOT_SERVING.*read-only' kaonctl health ;;
      2) rm "$(home node-2)/data/ballast" ;;
    esac
  }
}

worker_hangs() {
  both_train
  signal admin trainer-1 STOP
  before_block() {
    case "$1" in
      1) prints 'waiting for .*rank 1' kaonctl status ;;
      2) stop admin trainer-1 KILL ;;
      3) steps_after "$reached"; signal admin trainer-1 STOP ;;
    esac
  }
}

entry=$1
case "$entry" in
  "A disk is full")
    mkdir -p "$(home node-2)/data"
    mount -t tmpfs -o size=96m,mode=700 tmpfs "$(home node-2)/data" 2>"$work/mount.log" ||
      skipped "no tmpfs can be mounted here: $(cat "$work/mount.log")"
    ;;
esac
run_section docs/operating.md "Three machines"
case "$entry" in
  "A server process died"*) stop node-2 shard ;;
  "The coordinator's machine is lost") stop node-1 coordinator ;;
  "One disk is lost") stop node-2 shard; rm -r "$(home node-2)/data" ;;
  "All disks are lost") for node in node-1 node-2 node-3; do stop $node shard; rm -r "$(home $node)/data"; done ;;
  "A machine is lost for good")
    stop node-3 shard
    ip netns del "$prefix-node-3"
    for node in node-1 node-2; do stop $node shard; done
    stop node-1 coordinator
    ;;
  "A certificate expires soon" | "A job is to be replaced") ;;
  "A certificate has expired") certificate_expires ;;
  "A disk is full") disk_fills ;;
  "A worker hangs") worker_hangs ;;
  *) fail "no accident is known for: $entry" ;;
esac
run_section docs/runbook.md "$entry"
case "$entry" in
  "A certificate expires soon") said '^worker .*Z$' ;;
  "A disk is full") steps_after "$reached" ;;
  "A worker hangs")
    prints 'without rank 1' kaonctl status
    steps_after "$reached"
    ;;
  *)
    said SUMMARY
    prints '"applied_step": 30,' kaonctl -o json status
    ;;
esac
echo "$entry: $blocks blocks passed after $SECONDS s"
