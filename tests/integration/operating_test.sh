#!/bin/bash
# Executes the commands of docs/operating.md, in order. Each machine of the page is a network namespace on a bridge,
# with a home directory of its own; ssh and scp go from home to home. Between two blocks of one service, the service
# is killed. A block ```sh MACHINE[,MACHINE] [service=NAME|fails] runs on its machines, a service in the background.
set -euo pipefail
source tests/skipped.sh

page=docs/operating.md
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/operating.XXXXXX")
declare -A ADDRESS=([node-1]=10.77.0.1 [node-2]=10.77.0.2 [node-3]=10.77.0.3 [admin]=10.77.0.9)
prefix=kaon$$

fail() {
  echo "FAILED: $*" >&2
  tail -n 20 "$work"/*.log >&2 || true
  exit 1
}

cleanup() {
  local pid machine
  for pid in "$work"/*.pid; do
    [ ! -e "$pid" ] || kill -9 "$(cat "$pid")" 2>/dev/null || true
  done
  for machine in "${!ADDRESS[@]}"; do ip netns del "$prefix-$machine" 2>/dev/null || true; done
  ip netns del "$prefix-switch" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

if ! ip netns add "$prefix-switch" 2>"$work/refused.log"; then
  grep -qE 'Operation not permitted|Permission denied' "$work/refused.log" || fail "ip netns: $(cat "$work/refused.log")"
  skipped "network namespaces cannot be made here: $(cat "$work/refused.log")"
fi

# The bridge is in a namespace too: nothing of this host's network changes.
ip -n "$prefix-switch" link add bridge type bridge
ip -n "$prefix-switch" link set bridge up
for machine in "${!ADDRESS[@]}"; do
  ip netns add "$prefix-$machine"
  ip -n "$prefix-$machine" link add eth0 type veth peer name "$machine" netns "$prefix-switch"
  ip -n "$prefix-switch" link set "$machine" master bridge up
  ip -n "$prefix-$machine" addr add "${ADDRESS[$machine]}/24" dev eth0
  ip -n "$prefix-$machine" link set eth0 up
  ip -n "$prefix-$machine" link set lo up
  mkdir -p "$work/home/${ADDRESS[$machine]}"
done

mkdir "$work/bin"
for program in server/coordinator/kaon-coordinator server/shard/kaon-shard server/admin_cli/kaonctl client/train/kaon-train; do
  ln -s "$PWD/$program" "$work/bin/"
done
cat >"$work/bin/ssh" <<TEXT
#!/bin/bash
cd "$work/home/\$1" && shift && "\$@"
TEXT
cat >"$work/bin/scp" <<TEXT
#!/bin/bash
target=\${*: -1}
cp "\${@:1:\$#-1}" "$work/home/\${target%%:*}/\${target#*:}"
TEXT
chmod +x "$work/bin"/s??

# on MACHINE SCRIPT: runs it there. Variables that it exports stay for later blocks of the machine.
on() {
  local home=$work/home/${ADDRESS[$1]} script=$work/run-$1-$blocks.sh
  printf 'set -eo pipefail\n[ ! -e %s ] || source %s\n' "$work/$1.env" "$work/$1.env" >"$script"
  cat "$2" >>"$script"
  [ -n "${3:-}" ] || printf '\nexport -p | grep " KAON_" >%s || true\n' "$work/$1.env" >>"$script"
  # A service is killed by the test, everything else ends by itself.
  local limit=(timeout 90)
  [ -z "${3:-}" ] || limit=()
  exec ip netns exec "$prefix-$1" env HOME="$home" PATH="$work/bin:$PATH" ${limit[@]+"${limit[@]}"} bash "$script" </dev/null
}

# supervise NAME MACHINE SCRIPT: runs a service again each time that it ends with status 0.
supervise() {
  while true; do
    (on "$2" "$3" service) >>"$work/$1.log" 2>&1 &
    echo $! >"$work/$1.pid"
    wait $! || return
  done
}

# start MACHINE NAME SCRIPT: a service.
declare -A supervisor
start() {
  local name=$1-$2
  [ ! -e "$work/$name.pid" ] || fail "$name still runs"
  supervise "$name" "$1" "$3" 2>/dev/null &
  supervisor[$name]=$!
  until [ -s "$work/$name.pid" ]; do sleep 0.05; done
}

# stop MACHINE NAME: kills a service.
stop() {
  kill -9 "$(cat "$work/$1-$2.pid")"
  wait "${supervisor[$1-$2]}" || true
  rm "$work/$1-$2.pid"
}

# What happens before a section of the runbook.
accident() {
  case "$1" in
    "### A server process died"*) stop node-2 shard ;;
    "### The coordinator's machine"*) stop node-1 coordinator ;;
  esac
}

blocks=0
block=
head=
while IFS= read -r line; do
  if [ -n "$head" ]; then
    [ "$line" = '```' ] || { printf '%s\n' "$line" >>"$block"; continue; }
    read -r _ machines kind <<<"$head"
    for machine in ${machines//,/ }; do
      echo "== $machine: $(head -n 1 "$block")"
      case "$kind" in
        service=*) start "$machine" "${kind#service=}" "$block" ;;
        fails) ! (on "$machine" "$block") >"$work/last.log" 2>&1 || fail "$machine: no failure: $(cat "$block")" ;;
        *) (on "$machine" "$block") >"$work/last.log" 2>&1 || fail "$machine: $(cat "$block")" ;;
      esac
    done
    head=
    blocks=$((blocks + 1))
  elif [[ $line == '```sh '* ]]; then
    head=$line block=$work/block-$blocks
  elif [[ $line == '### '* ]]; then
    accident "$line"
  fi
done <"$page"
[ $blocks -eq "$(grep -c '^```sh ' "$page")" ] || fail "only $blocks blocks of $page ran"
grep -q SUMMARY "$work/last.log" || fail "the last training printed no SUMMARY"
for pid in "$work"/*.pid; do kill -0 "$(cat "$pid")" || fail "$(basename "$pid" .pid) has ended"; done

# served ADDRESS: serial number of the certificate that a server shows.
served() { ip netns exec "$prefix-admin" openssl s_client -connect "$1" </dev/null 2>/dev/null | openssl x509 -noout -serial; }
# The servers show the renewed certificates without a restart.
deadline=$((SECONDS + 60))
for server in 10.77.0.1:7070/shard 10.77.0.2:7070/shard 10.77.0.3:7070/shard 10.77.0.2:7000/coordinator; do
  renewed=$(openssl x509 -noout -serial -in "$work/home/${ADDRESS[admin]}/kaon/tls/${server#*/}.crt")
  until [ "$(served "${server%/*}" || true)" = "$renewed" ]; do
    [ $SECONDS -lt $deadline ] || fail "$server still shows its old certificate"
    sleep 0.2
  done
done
echo "$blocks blocks passed"
