#!/bin/bash
# deploy/certificates.sh: roles, hosts, days, a CA that is kept, and what `show` says.
set -euo pipefail
cd "$TEST_TMPDIR"
script=$TEST_SRCDIR/kaon/deploy/certificates.sh
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# shows DIR REGEX: a line of `show DIR` matches.
shows() {
  local said
  said=$("$script" show "$1" 2>&1 | tr -s ' ') || true
  grep -qE "$2" <<<"$said" || fail "show $1 has no line $2: $said"
}

# refused WHY ARGUMENT...
refused() {
  local why=$1 said status=0
  shift
  said=$("$script" "$@" 2>&1) || status=$?
  [[ $status = 2 && $said = *"$why"* ]] || fail "$* ended with $status and said: $said; expected: $why"
}

day=$(date -u -d '+30 days' +%F)
said=$("$script" all --workers any --days 30 --ca-dir ca --host shard-0 --host 10.99.0.11 --host fd00::1)
[[ $said = *"all expire at ${day}T"* ]] || [[ $said = *"all expire at $(date -u -d '+30 days' +%F)T"* ]] ||
  fail "it said: $said; expected an expiry on $day"
shows all '^shard shard localhost,127\.0\.0\.1,0:0:0:0:0:0:0:1,shard-0,10\.99\.0\.11,FD00:0:0:0:0:0:0:1 '
shows all '^worker worker - '
[ ! -e all/worker-0.crt ] || fail "--workers any made a certificate of one rank"
[ ! -e all/ca.key ] && [ "$(stat -c %a ca/ca.key)" = 600 ] || fail "the CA's key is not in the CA's directory alone"

"$script" more --ca-dir ca --role shard-1=shard --role checkpointer --role w3=worker/run/3 >/dev/null
shows more '^w3 worker/run/3 - '
shows more '^checkpointer checkpointer - '
cmp -s all/ca.crt more/ca.crt || fail "the kept CA was not used again"
openssl verify -CAfile all/ca.crt more/shard-1.crt >/dev/null || fail "shard-1.crt is not of the kept CA"
[ "$(echo more/*.crt)" = "more/ca.crt more/checkpointer.crt more/shard-1.crt more/w3.crt" ] || fail "--role made $(echo more/*.crt)"

LD_PRELOAD=$(dpkg -L libfaketime | grep '/libfaketime\.so\.1$') FAKETIME=-3d "$script" old >/dev/null
cp old/shard.crt more/old.crt
status=0
"$script" show more >listed || status=$?
[ $status = 1 ] && grep -q '^old .*(expired)$' listed || fail "show of an expired certificate ended with $status: $(cat listed)"

refused "--role wizard is none of" all --role wizard
refused "--role worker/run/03 is none of" all --role worker/run/03
refused "--role checkpointer/run is none of" all --role checkpointer/run
refused "--role worker/run needs a name" all --role worker/run
refused "--days 0 is not 1 .. 3650" all --days 0
refused "ca/ca.crt expires at" all --ca-dir ca --days 3650
refused "--workers two is neither" all --workers two
refused "no .crt file" show ca/none
[ $failures = 0 ]
