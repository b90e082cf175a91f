#!/bin/bash
# P6, P7: kills shards with -9 in the middle of training, alone, with the coordinator, and all at once, and
# restarts them on their data. No step is lost; training continues by itself and ends in the bits of an undisturbed
# run.
source tests/integration/real_cluster.sh

STEPS=${STEPS:-60}
OPTIONS=(--workers 2 --split 3,5 --steps "$STEPS" --max-grad-norm 0.05)

reached() { [ "$(steps_done)" -ge "$1" ] || trained; }
steps_done() { cat "$TEST_TMPDIR/log" 2>/dev/null | grep -c '"type": *"step"'; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# strike NAME...: kills servers at once, restarts them, and prints how long it took until the next step was done.
strike() {
  local name step start served
  step=$(steps_done)
  start=$(now_ms)
  for name in "$@"; do cluster_kill "$DIR" "$name"; done
  for name in "$@"; do
    case "$name" in
      shard-*) cluster_revive_shard "$DIR" "${name#shard-}" || { cluster_show_logs "$DIR"; exit 1; } ;;
      coordinator) cluster_revive_coordinator "$DIR" 2 || { cluster_show_logs "$DIR"; exit 1; } ;;
    esac
  done
  served=$(now_ms)
  wait_for 60 reached $((step + 1)) || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; exit 1; }
  echo "after step $step: $* killed; serving again after $((served - start)) ms, next step after $(($(now_ms) - start)) ms"
}

start 2 2
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
wait_for 60 reached 5
strike shard-1
wait_for 60 reached $((STEPS / 6))
strike shard-0
# The second kill hits the shard before it has done anything.
strike shard-0
wait_for 60 reached $((STEPS / 3))
strike shard-1 coordinator
wait_for 60 reached $((STEPS / 2))
strike shard-0 shard-1
wait_for 60 reached $((STEPS * 2 / 3))
strike shard-0 shard-1 coordinator
wait_for 120 trained
wait "$trainer" || { cat "$TEST_TMPDIR/service"; fail "kaon-train: exit status $?"; }

# The history must have every step once.
wait_for 60 has_history "$STEPS" || cluster_show_logs "$DIR"
"$KAONCTL" --dir "$DIR" -o json status >"$TEST_TMPDIR/status"
python3 -c '
import json, sys
status = json.load(open(sys.argv[1]))
for shard in status["shards"]:
    assert shard["durability"] == "journal", shard
    assert shard["journal_bytes"] > 0 and shard["read_only_reason"] == "", shard
    assert shard["recovered_entries"] > 0, shard
    print("shard", shard["shard"], "read", shard["recovered_entries"], "entries back in", shard["recovery_seconds"], "s")
' "$TEST_TMPDIR/status" || fail "status: $(cat "$TEST_TMPDIR/status")"
python3 -c '
import json, sys
records = json.load(open(sys.argv[1]))["steps"]
positions = [record["position"] for record in records]
assert positions == list(range(positions[0], positions[0] + len(positions))), positions
steps = [record["step"] for record in records if record["kind"] == "train"]
assert steps == list(range(1, int(sys.argv[2]) + 1)), steps
' "$TEST_TMPDIR/steps" "$STEPS" || fail "history: $(head -c 2000 "$TEST_TMPDIR/steps")"
stop
train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}"
here=$(field "$TEST_TMPDIR/local" weights_digest)
there=$(field "$TEST_TMPDIR/service" weights_digest)
echo "service with 9 kills of shards and 2 of the coordinator $there, local $here"
[ "$here" = "$there" ] || fail "digests differ"
[ "$(field "$TEST_TMPDIR/service" applied)" = "$STEPS" ] || fail "not $STEPS steps applied"
finish
