# Executes the commands of a page of docs. Each machine of the page is a network namespace on a bridge, with a home
# directory of its own; ssh and scp go from home to home. ~/kaon/checkpoints of the three servers is one directory.
# A block ```sh MACHINE[,MACHINE] [service=NAME|fails] runs on its machines. A service runs in the background, and
# replaces the one of that name. A block `fails` must fail. What the newest block printed is in $work/last.log.
# A test sources this file and calls run_section.
set -euo pipefail
source tests/skipped.sh

work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/page.XXXXXX")
declare -A ADDRESS=([node-1]=10.77.0.1 [node-2]=10.77.0.2 [node-3]=10.77.0.3 [admin]=10.77.0.9)
prefix=kaon-${work##*.}
blocks=0

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
  umount "$work"/home/*/kaon/data 2>/dev/null || true
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
mkdir -m 700 "$work/checkpoints"
for machine in "${!ADDRESS[@]}"; do
  ip netns add "$prefix-$machine"
  ip -n "$prefix-$machine" link add eth0 type veth peer name "$machine" netns "$prefix-switch"
  ip -n "$prefix-switch" link set "$machine" master bridge up
  ip -n "$prefix-$machine" addr add "${ADDRESS[$machine]}/24" dev eth0
  ip -n "$prefix-$machine" link set eth0 up
  ip -n "$prefix-$machine" link set lo up
  mkdir -p "$work/home/${ADDRESS[$machine]}/kaon"
  ln -s "$work/checkpoints" "$work/home/${ADDRESS[$machine]}/kaon/checkpoints"
done

mkdir "$work/bin"
for program in server/coordinator/kaon-coordinator server/shard/kaon-shard server/admin_cli/kaonctl client/train/kaon-train; do
  ln -s "$PWD/$program" "$work/bin/"
done
cat >"$work/bin/ssh" <<TEXT
#!/bin/bash
cd "$work/home/\$1" && shift && HOME=\$PWD "\$@"
TEXT
cat >"$work/bin/scp" <<TEXT
#!/bin/bash
target=\${*: -1}
cp "\${@:1:\$#-1}" "$work/home/\${target%%:*}/\${target#*:}"
TEXT
chmod +x "$work/bin"/s??

# on MACHINE SCRIPT [service]: runs it there. Variables that it exports stay for later blocks of the machine.
on() {
  local home=$work/home/${ADDRESS[$1]} script
  script=$(mktemp "$work/run.XXXXXX")
  printf 'set -eo pipefail\n[ ! -e %s ] || source %s\n' "$work/$1.env" "$work/$1.env" >"$script"
  cat "$2" >>"$script"
  [ -n "${3:-}" ] || printf '\nexport -p | grep " KAON_" >%s || true\n' "$work/$1.env" >>"$script"
  # A service is ended by the test, everything else ends by itself.
  local limit=(timeout 300)
  [ -z "${3:-}" ] || limit=()
  exec ip netns exec "$prefix-$1" env HOME="$home" PATH="$work/bin:$PATH" ${limit[@]+"${limit[@]}"} bash "$script" </dev/null
}

# signal MACHINE NAME SIGNAL
signal() { kill "-$3" "$(cat "$work/$1-$2.pid")"; }

# runs MACHINE NAME: whether the service has not ended.
runs() { kill -0 "$(cat "$work/$1-$2.pid")" 2>/dev/null; }

# stop MACHINE NAME [SIGNAL]: ends a service, by -9 unless another signal is given.
stop() {
  touch "$work/$1-$2.stopped"
  ! runs "$1" "$2" || signal "$1" "$2" "${3:-KILL}"
  wait "${supervisor[$1-$2]}" || true
  rm "$work/$1-$2".{pid,stopped}
}

# supervise NAME MACHINE SCRIPT: runs a service again each time that it ends with status 0.
supervise() {
  while [ ! -e "$work/$1.stopped" ]; do
    (on "$2" "$3" service) >>"$work/$1.log" 2>&1 &
    echo $! >"$work/$1.pid"
    wait $! || return 0
  done
}

# start MACHINE NAME SCRIPT: a service.
declare -A supervisor
start() {
  local name=$1-$2
  [ ! -e "$work/$name.pid" ] || stop "$1" "$2" TERM
  supervise "$name" "$1" "$3" 2>/dev/null &
  supervisor[$name]=$!
  local deadline=$((SECONDS + 60))
  until [ -s "$work/$name.pid" ]; do
    [ $SECONDS -lt $deadline ] || fail "$name does not start"
    sleep 0.05
  done
}

# run_block FILE HEAD
run_block() {
  local machine machines kind status
  read -r _ machines kind <<<"$2"
  for machine in ${machines//,/ }; do
    echo "== $SECONDS s, $machine: $(head -n 1 "$1")"
    case "$kind" in
      service=*) start "$machine" "${kind#service=}" "$1" ;;
      fails)
        status=0
        (on "$machine" "$1") >"$work/last.log" 2>&1 || status=$?
        [[ $status -ne 0 && $status -lt 124 ]] || fail "$machine: status $status, must fail: $(cat "$1")"
        ;;
      *) (on "$machine" "$1") >"$work/last.log" 2>&1 || fail "$machine: $(cat "$1")" ;;
    esac
  done
  blocks=$((blocks + 1))
}

# A test may define before_block NUMBER, which is called before each block of a section, from 1.
before_block() { :; }

# run_section PAGE TITLE: the blocks below that heading, up to the next heading.
run_section() {
  local line title= head= block before=$blocks
  echo "== $2"
  while IFS= read -r line; do
    if [ -n "$head" ]; then
      [ "$line" = '```' ] || { printf '%s\n' "$line" >>"$block"; continue; }
      if [[ $title = "$2" && $head = '```sh '* ]]; then
        before_block $((blocks - before + 1))
        run_block "$block" "$head"
      fi
      head=
    elif [[ $line == '```'* ]]; then
      head=$line block=$work/block-$blocks
      : >"$block"
    elif [[ $line =~ ^##+\ (.*)$ ]]; then
      title=${BASH_REMATCH[1]}
    fi
  done <"$1"
  [ "$blocks" -gt "$before" ] || fail "$1 has no commands under: $2"
}

# said TEXT: the newest block printed it.
said() { grep -qE -- "$1" "$work/last.log" || fail "not printed: $1"; }

# admin_does COMMAND...: runs it on the machine admin, with the variables of its blocks.
admin_does() {
  printf '%q ' "$@" >"$work/command"
  (on admin "$work/command")
}
