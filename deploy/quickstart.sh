#!/bin/bash
# From a fresh clone to a trained model: installs, builds, starts a cluster, trains, shows what happened, stops all of it.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/quickstart.sh [options]

Installs the Debian packages Kaon needs, builds it, starts one coordinator and some shards on loopback with their own
certificates, trains a language model on the licence texts of this machine, checks that the shards counted as many
Newton-Schulz updates as the trainer claims, and stops everything. No option is needed.

  --shards N       shard servers (default 2)
  --workers N      workers of the trainer (default 2)
  --steps N        training steps (default: kaon-train's)
  --chaos          kill a shard, then a shard and the coordinator together, with -9 in the middle of training, start
                   them again on what they left on the disk, and show that training ends in the same bits as an
                   undisturbed run of `kaon-train --local` (100 steps unless --steps is given; fails if training ends
                   before the three kills)
  --dir DIR        keep certificates, logs and the servers' data in DIR, and remove those of an earlier run there first
                   (default: a private temporary directory, removed after success)
  --keep-running   leave the servers running after training and say how to look at them and stop them
  --binaries BIN   use the programs of this bazel-bin instead of building
  --help           this text

Exit status: 0 done, 1 failed, 2 wrong command line, 130 after Ctrl-C, 143 after TERM. The last line is SUMMARY {json}.
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=deploy/local_cluster.sh
source "$root/deploy/local_cluster.sh"
# shellcheck source=deploy/progress.sh
source "$root/deploy/progress.sh"
# shellcheck source=deploy/bazel_server.sh
source "$root/deploy/bazel_server.sh"

shards=2
workers=2
steps=
dir=
binaries=
keep_running=
chaos=
is_own_dir=
# Whether what is in the directory was started here, and is stopped here.
is_claimed=
# What this script runs and must not leave behind: Bazel, then the trainer.
running_pid=
status=0
# With --chaos: servers killed so far in the middle of training.
kills=0
planned_kills=3

say() { echo "==> $*"; }

usage_error() {
  echo "quickstart.sh: $*; see --help" >&2
  exit 2
}

number() {
  [[ ${2:-} =~ ^[1-9][0-9]{0,5}$ ]] || usage_error "$1 is '${2:-}', expecting a number from 1 to 999999"
}

parse_command_line() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --help | -h) usage; exit 0 ;;
      --keep-running) keep_running=1; shift; continue ;;
      --chaos) chaos=1; shift; continue ;;
      --shards) number "$@"; shards=$2 ;;
      --workers) number "$@"; workers=$2 ;;
      --steps) number "$@"; steps=$2 ;;
      --dir) dir=${2:-}; [ -n "$dir" ] || usage_error "--dir needs a directory" ;;
      --binaries) binaries=${2:-}; [ -n "$binaries" ] || usage_error "--binaries needs a directory" ;;
      *) usage_error "unknown option $1" ;;
    esac
    shift 2
  done
  if [ -n "$chaos" ]; then
    steps=${steps:-100}
    [ "$steps" -ge 3 ] || usage_error "--steps is $steps, expecting at least 3 with --chaos"
  fi
}

# Runs a command in the background, so that a signal to this script is seen while it runs.
start_supervised() {
  "$@" &
  running_pid=$!
}

# Its exit status.
await_supervised() {
  local result=0
  wait "$running_pid" || result=$?
  running_pid=
  return $result
}

supervise() {
  start_supervised "$@"
  await_supervised
}

build() {
  local options
  bazel_server_begin "$root"
  options=(--config=opt "--disk_cache=$("$root/deploy/disk_cache.sh")" "--define=kaon_commit=$("$root/deploy/commit.sh")")
  cd "$root"
  PROGRESS_RUNNER=supervise with_progress building bazel build "${options[@]}" "${PROGRESS_OF_BAZEL[@]}" \
    --ui_event_filters=-info //server/coordinator:kaon-coordinator //server/shard:kaon-shard \
    //server/admin_cli:kaonctl //client/train:kaon-train || exit 1
  binaries=$(bazel info "${options[@]}" bazel-bin 2>/dev/null)
  bazel_server_end
  cd - >/dev/null
}

# stop_running SIGNAL: ends what supervise runs. The trainer finishes its open step; hanging servers must not keep it.
stop_running() {
  local deadline=$((SECONDS + 20))
  [ -n "$running_pid" ] || return 0
  kill -s "$1" "$running_pid" 2>/dev/null || true
  while [[ $(ps -o stat= -p "$running_pid") =~ ^[^Z] ]]; do
    if [ $SECONDS -ge $deadline ]; then
      kill -KILL "$running_pid" 2>/dev/null || true
      break
    fi
    sleep 0.05
  done
  wait "$running_pid" 2>/dev/null || true
}

# Ends what is left; runs once, whatever the reason. The directory stays if it says why, or was asked for.
finish() {
  trap '' INT TERM HUP
  trap - EXIT
  stop_running INT
  bazel_server_end
  if [ -n "$is_claimed" ]; then
    if [ "$status" -ne 0 ] || [ -z "$keep_running" ]; then
      cluster_stop "$dir" || [ "$status" -ne 0 ] || status=1
    fi
    if [ "$status" -eq 1 ]; then
      cluster_show_logs "$dir"
      echo "quickstart.sh: failed; logs are in $dir" >&2
    elif [ -n "$is_own_dir" ] && { [ "$status" -ne 0 ] || [ -z "$keep_running" ]; }; then
      rm -rf "$dir"
    fi
  fi
  exit "$status"
}

on_signal() {
  echo >&2
  echo "quickstart.sh: stopped by $1" >&2
  status=$2
  finish
}

# run_trainer OUT OPTIONS...: takes the place of the (background) shell it is called in. In a session of its own: Ctrl-C
# reaches this script alone, which then stops things in order.
run_trainer() {
  local out=$1
  shift
  exec setsid setpriv --pdeathsig TERM "$KAON_TRAIN" "$@" >&"$out" 2>"$dir/train.log" </dev/null
}

# The newest step that the trainer has logged; 0 before the first.
steps_done() {
  local line
  line=$(tail -n 1 "$dir/train.jsonl" 2>/dev/null | grep -o '"step": *[0-9]*') || line=0
  echo "${line##*[!0-9]}"
}

trainer_runs() {
  [[ $(ps -o stat= -p "$running_pid") =~ ^[^Z] ]]
}

# await_step N: polls until it is done; fails when the trainer ends before.
await_step() {
  until [ "$(steps_done)" -ge "$1" ]; do
    # It may have done its last steps since.
    trainer_runs || [ "$(steps_done)" -ge "$1" ] || return 1
    sleep 0.02
  done
}

# strike NAME...: kills servers at once and starts them again, shards first; returns when training goes on. What no step
# follows was not in the middle of training, and does not count.
strike() {
  local name step start
  trainer_runs || return 0
  step=$(steps_done)
  say "killing $* with -9 after step $step"
  start=$(date +%s%N)
  for name in "$@"; do cluster_kill "$dir" "$name"; done
  for name in "$@"; do
    case "$name" in
      shard-*) cluster_revive_shard "$dir" "${name#shard-}" || return 1 ;;
      coordinator) cluster_revive_coordinator "$dir" "$shards" || return 1 ;;
    esac
  done
  await_step $((step + 1)) || return 0
  kills=$((kills + $#))
  say "training goes on after $((($(date +%s%N) - start) / 1000000)) ms"
}

# Fails when a server does not come back.
disturb() {
  await_step $((steps / 3)) || return 0
  strike "shard-$((shards - 1))" || return 1
  await_step $((steps * 2 / 3)) || return 0
  strike shard-0 coordinator
}

# digest FILE: of the weights, as the summary in it says.
digest() {
  grep '^SUMMARY {' "$1" | tail -n 1 | grep -o '"weights_digest": *"[0-9a-f]*"' | grep -o '[0-9a-f]*"$' | tr -d '"'
}

compare() {
  local here there
  if [ "$kills" -ne "$planned_kills" ]; then
    echo "quickstart.sh: training ended after $kills of $planned_kills kills; more --steps leave time for them" >&2
    return 1
  fi
  say "training undisturbed, with kaon-train --local"
  supervise run_trainer 1 --local --workers "$workers" --steps "$steps" >"$dir/undisturbed.out" || return 1
  here=$(digest "$dir/train.out")
  there=$(digest "$dir/undisturbed.out")
  if [ -z "$here" ] || [ "$here" != "$there" ]; then
    echo "quickstart.sh: weights digest '$here' with kills, '$there' undisturbed" >&2
    return 1
  fi
  say "weights digest $here with $kills kills, $there undisturbed: the same bits"
}

train() {
  rm -f "$dir/train.jsonl"
  local options=(--connect "127.0.0.1:$(cat "$dir/coordinator.port")" --tls-dir "$dir/tls" --workers "$workers")
  [ -z "$steps" ] || options+=(--steps "$steps")
  [ -z "$chaos" ] || options+=(--log-jsonl "$dir/train.jsonl")
  local out tee_pid result=0
  # The summary is shown once, as the last line of all.
  exec {out}> >(exec setsid bash -c 'tee "$0" | grep --line-buffered -v "^SUMMARY {"' "$dir/train.out")
  tee_pid=$!
  start_supervised run_trainer "$out" "${options[@]}"
  # Servers that are started meanwhile must not keep it open.
  exec {out}>&-
  if [ -n "$chaos" ]; then disturb || result=1; fi
  [ "$result" -eq 0 ] || stop_running TERM
  [ -z "$running_pid" ] || await_supervised || result=$?
  wait "$tee_pid" || true
  return $result
}

show() {
  say "kaonctl parameters"
  "$KAONCTL" --dir "$dir" parameters
  say "kaonctl steps --limit 5"
  "$KAONCTL" --dir "$dir" steps --limit 5
}

# loss_of first|last: the training loss of that step line of the trainer.
loss_of() {
  local pick=head
  [ "$1" = first ] || pick=tail
  grep -E '^step +[0-9]+ .*loss [0-9]' "$dir/train.out" | $pick -n 1 | grep -o 'loss [0-9.]*' | cut -d ' ' -f 2
}

# Says that it worked, and what to do next.
conclude() {
  local first last
  first=$(loss_of first) || first=
  last=$(loss_of last) || last=
  if [ -n "$first" ] && [ -n "$last" ]; then
    say "It worked: $workers workers trained a model on $shards shards; the training loss went from $first to $last."
  else
    say "It worked: $workers workers trained a model on $shards shards."
  fi
  say "Next: train your own model ($root/README.md), see what a killed server does (deploy/quickstart.sh --chaos)," \
    "look at a running cluster (deploy/quickstart.sh --keep-running, docs/kaonctl.md)."
}

# check_updates SUMMARY: the trainer derives its Newton-Schulz updates from the decisions it was told, as a worker may not
# ask the shards; the admin may.
check_updates() {
  "$KAONCTL" --dir "$dir" -o json parameters | python3 -c '
import json, sys

claimed = json.loads(sys.argv[1][len("SUMMARY "):])["newton_schulz_updates"]
rows = json.load(sys.stdin)["parameters"]
counted = {row["name"]: row["newton_schulz_updates"] for row in rows
           if row["route"] == "muon" or row["newton_schulz_updates"] > 0}
differing = [name for name in sorted({**claimed, **counted}) if claimed.get(name) != counted.get(name)]
for name in differing:
    said, count = (f"{n} Newton-Schulz updates" if n is not None else "nothing"
                   for n in (claimed.get(name), counted.get(name)))
    print(f"quickstart.sh: parameter {name}: the summary says {said}, the shards counted {count}", file=sys.stderr)
if not counted and not claimed:
    sys.exit("quickstart.sh: no parameter goes to Muon")
sys.exit(1 if differing else 0)' "$1" || exit 1
}

main() {
  parse_command_line "$@"
  if [ -z "$binaries" ]; then
    "$root/deploy/install_packages.sh"
    say "building"
    build
  fi
  cluster_find_binaries "$binaries"
  if [ -z "$dir" ]; then
    is_own_dir=1
    dir=$(mktemp -d "${TMPDIR:-/tmp}/kaon.XXXXXX")
  fi
  dir=$(realpath -m "$dir")
  [ -z "$keep_running" ] || KAON_CLUSTER_DETACHED=1
  cluster_claim "$dir"
  is_claimed=1
  KAON_METRICS=1
  say "starting 1 coordinator and $shards shards in $dir"
  cluster_start "$dir" "$shards" "$workers"
  say "watch it train: $(cluster_status_link "$dir")"
  say "training with $workers workers"
  train || {
    echo "quickstart.sh: kaon-train ended with exit status $?" >&2
    exit 1
  }
  show
  local summary
  summary=$(grep '^SUMMARY {' "$dir/train.out" | tail -n 1)
  [ -z "$chaos" ] || compare || exit 1
  check_updates "$summary"
  if [ -n "$keep_running" ]; then
    say "status page: $(cluster_status_link "$dir")"
    say "left running: kaonctl is $KAONCTL --dir $dir; stop with deploy/local_cluster.sh stop $dir"
  else
    say "stopping"
    cluster_stop "$dir"
  fi
  conclude
  echo "$summary"
}

trap 'on_signal SIGINT 130' INT
trap 'on_signal SIGTERM 143' TERM
trap 'on_signal SIGHUP 129' HUP
trap 'status=$?; finish' EXIT
main "$@"
