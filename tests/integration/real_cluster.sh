# Shared functions of the integration tests: they start real servers and kaon-train from the test's runfiles by
# deploy/local_cluster.sh in a directory of the test. A test sources this file, calls its functions, and ends with
# `finish`.
set -euo pipefail

# shellcheck source=deploy/local_cluster.sh
source deploy/local_cluster.sh
cluster_find_binaries "$PWD"

DIR=$TEST_TMPDIR/cluster
failures=0
# The model is small, because these tests check the service.
SMALL=(--hidden 48 --embedding 8 --batch-size 96 --report-every 1)

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# start SHARDS WORKERS: starts a new cluster.
start() {
  rm -rf "$DIR"
  cluster_start "$DIR" "$1" "$2" || { cluster_show_logs "$DIR"; exit 1; }
}

stop() { cluster_stop "$DIR" || fail "servers did not stop cleanly"; }

trap 'cluster_stop "$DIR" >/dev/null 2>&1 || true' EXIT

# train OUT OPTIONS...: runs kaon-train against the cluster over TRANSPORT, which is the network unless a test sets
# it.
train() {
  local out=$1
  shift
  "$KAON_TRAIN" --connect "127.0.0.1:$(cat "$DIR/coordinator.port")" --tls-dir "$DIR/tls" --transport "${TRANSPORT:-grpc}" \
    "${SMALL[@]}" "$@" >"$out" 2>&1
}

train_local() {
  local out=$1
  shift
  "$KAON_TRAIN" --local "${SMALL[@]}" "$@" >"$out" 2>&1
}

# field OUT NAME: prints a field of the SUMMARY in the last line of OUT.
field() {
  tail -n 1 "$1" | python3 -c '
import json, sys
line = sys.stdin.readline()
assert line.startswith("SUMMARY "), line
print(json.loads(line[8:])[sys.argv[1]])' "$2"
}

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { fail "waited in vain for: $*"; return 1; }
    sleep 0.05
  done
}

# stretched MS: so many milliseconds, times how much longer a computation takes on this machine now than it would take alone.
stretched() {
  python3 -c '
import sys, time
begin, cpu = time.monotonic(), time.process_time()
while time.process_time() - cpu < 0.05:
    pass
print(int(int(sys.argv[1]) * max(1, (time.monotonic() - begin) / (time.process_time() - cpu))))' "$1"
}

# Training by one process for each rank, with the array OPTIONS of the test.
declare -A trainer

# launch RANK OPTIONS...: starts a trainer; its output goes to rank-RANK. Unless TRANSPORT is set, even ranks use
# the network. Odd ranks use shared memory if they get a session, so that steps use both.
launch() {
  local rank=$1 transports=(grpc auto)
  shift
  # A function would have a pid of its own; this pid is the trainer's.
  "$KAON_TRAIN" --connect "${CONNECT:-127.0.0.1:$(cat "$DIR/coordinator.port")}" --tls-dir "$DIR/tls" "${SMALL[@]}" "${OPTIONS[@]}" \
    --rank "$rank" --transport "${TRANSPORT:-${transports[rank % 2]}}" "$@" >"$TEST_TMPDIR/rank-$rank" 2>&1 &
  trainer[$rank]=$!
}

ended() { ! kill -0 "${trainer[$1]}" 2>/dev/null; }

# join_trainer SECONDS RANK: waits for its end, which must be a success.
join_trainer() {
  wait_for "$1" ended "$2" || give_up
  wait "${trainer[$2]}" || give_up
}

kill_trainer() {
  kill -KILL "${trainer[$1]}"
  wait "${trainer[$1]}" 2>/dev/null || true
}

# status_field NAME: prints a field of `kaonctl status`.
status_field() {
  "$KAONCTL" --dir "$DIR" -o json status | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
# described FILE: writes `kaonctl status` to it. Fails if a shard lacks its description, as one that has just
# restarted may.
described() {
  "$KAONCTL" --dir "$DIR" -o json status >"$1" && python3 -c '
import json, sys
sys.exit(not all("durability" in shard for shard in json.load(open(sys.argv[1]))["shards"]))' "$1"
}
step_reached() { [ "$(status_field applied_step)" -ge "$1" ]; }
phase_has() { [[ $(status_field phase) == *"$1"* ]]; }

# compare STEPS OPTIONS...: the trainers ended like a run without servers.
compare() {
  local steps=$1 here there
  shift
  train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}" --steps "$steps" "$@"
  here=$(field "$TEST_TMPDIR/local" weights_digest)
  there=$(field "$TEST_TMPDIR/rank-0" weights_digest)
  echo "service $there, local $here"
  [ "$here" = "$there" ] || fail "digests differ"
}

# step_now: prints the newest applied step as soon as the coordinator answers.
step_now() {
  local step deadline=
  until step=$(status_field applied_step 2>/dev/null) && [ -n "$step" ]; do
    [ $SECONDS -lt "${deadline:=$((SECONDS + 30))}" ] || return 1
    sleep 0.05
  done
  echo "$step"
}

# consistent: writes step and weights of one answer in which every shard is at the same step to the file
# `consistent`.
consistent() {
  "$KAONCTL" --dir "$DIR" -o json status 2>/dev/null | python3 -c '
import json, sys
status = json.load(sys.stdin)
step = status["applied_step"]
sys.exit(1) if any(shard.get("applied_step") != step for shard in status["shards"]) else print(step, status["weights_digest"])
' >"$TEST_TMPDIR/consistent" 2>/dev/null
}

# has_history STEPS: the history, in the file `steps`, has every train step up to STEPS. A killed shard may learn
# the newest decision again, and a new coordinator reads the shards first.
has_history() {
  "$KAONCTL" --dir "$DIR" -o json steps --limit 1000 >"$TEST_TMPDIR/steps" 2>/dev/null || return 1
  python3 -c '
import json, sys
steps = [record["step"] for record in json.load(open(sys.argv[1]))["steps"] if record["kind"] == "train"]
sys.exit(0 if steps and steps[-1] >= int(sys.argv[2]) else 1)' "$TEST_TMPDIR/steps" "$1"
}

# compare_open STEPS OPTIONS...: kills the trainers wherever they are. The service has the weights of a run without
# servers that ends there.
compare_open() {
  for rank in "${!trainer[@]}"; do kill_trainer "$rank"; done
  compare_newest "$@"
}

# compare_newest STEPS OPTIONS...: with no trainer left, the service has the weights of a run without servers that
# ends at its newest step.
compare_newest() {
  local steps=$1 here there= last=
  shift
  # A complete step is still decided. The weights of the newest step are those of the other run in any case.
  wait_for 60 consistent || give_up
  read -r last there <"$TEST_TMPDIR/consistent"
  train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}" --steps "$steps" --stop-after "$last" "$@"
  here=$(field "$TEST_TMPDIR/local" weights_digest)
  echo "step $last: service $there, local $here"
  [ "$here" = "$there" ] || fail "digests differ"
}

give_up() {
  cat "$TEST_TMPDIR"/rank-*
  "$KAONCTL" --dir "$DIR" status
  cluster_show_logs "$DIR"
  exit 1
}

finish() {
  if [ "$failures" -gt 0 ]; then
    echo "$failures failures"
    exit 1
  fi
  echo "all passed"
}
