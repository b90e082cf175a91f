#!/bin/bash
# P6, P7: shards with snapshots every few steps and a truncated journal are killed with -9 at random moments, also
# while they write a snapshot. They lose no step and end in the bits of an undisturbed run, and their disk use does
# not grow with the steps.
source tests/integration/real_cluster.sh

STEPS=${STEPS:-150}
KILLS=${KILLS:-10}
OPTIONS=(--workers 2 --split 3,5 --steps "$STEPS" --max-grad-norm 0.05)
export KAON_SNAPSHOT_JOURNAL_BYTES=$((256 << 10))
RANDOM=${SEED:-20261121}

steps_done() { cat "$TEST_TMPDIR/log" 2>/dev/null | grep -c '"type": *"step"'; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }
reached() { [ "$(steps_done)" -ge "$1" ] || trained; }
# A file may vanish before it is read, because the other shard runs.
disk_bytes() { { cat "$DIR/$1"/journal-* "$DIR/$1"/snapshot-* 2>/dev/null || true; } | wc -c; }

start 2 2
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
most=0
for ((kill = 1; kill <= KILLS; ++kill)); do
  wait_for 120 reached $((STEPS * kill / (KILLS + 1)))
  sleep 0.0$((RANDOM % 10))
  case $((RANDOM % 3)) in
    0) struck=(0) ;;
    1) struck=(1) ;;
    *) struck=(0 1) ;;
  esac
  for shard in "${struck[@]}"; do cluster_kill "$DIR" "shard-$shard"; done
  for shard in 0 1; do
    bytes=$(disk_bytes "shard-$shard")
    most=$((bytes > most ? bytes : most))
  done
  for shard in "${struck[@]}"; do
    cluster_revive_shard "$DIR" "$shard" || { cluster_show_logs "$DIR"; exit 1; }
  done
done
wait_for 240 trained
wait "$trainer" || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; fail "kaon-train: exit status $?"; }

wait_for 60 described "$TEST_TMPDIR/status" || { cat "$TEST_TMPDIR/status"; give_up; }
python3 -c '
import json, sys
status = json.load(open(sys.argv[1]))
for shard in status["shards"]:
    assert shard["snapshot_problem"] == "", shard
    assert shard["snapshot_step"] > int(sys.argv[2]) / 2, shard
    print("shard", shard["shard"], "has a snapshot of step", shard["snapshot_step"], "and", shard["journal_bytes"], "bytes on disk")
' "$TEST_TMPDIR/status" "$STEPS" || fail "status: $(cat "$TEST_TMPDIR/status")"
# All bytes that were ever appended exceed this by far; the largest number of a frame shows how many there were.
last=$(ls "$DIR/shard-0" | grep '^journal-' | tail -n 1)
first=$(ls "$DIR/shard-0" | grep '^journal-' | head -n 1)
[ -f "$DIR/shard-0/start" ] || fail "the journal was never truncated"
echo "at most $most bytes on one disk; the journal of shard 0 now begins with $first and ends with $last"
# Bound: three snapshots, two triggers, a segment of a quarter of one, and the step in flight.
snapshot=$(cat "$DIR/shard-0"/snapshot-* | wc -c)
[ "$most" -lt $((2 * snapshot + 4 * KAON_SNAPSHOT_JOURNAL_BYTES)) ] || fail "$most bytes on one disk"
stop
train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}"
here=$(field "$TEST_TMPDIR/local" weights_digest)
there=$(field "$TEST_TMPDIR/service" weights_digest)
echo "service with $KILLS kills of shards $there, local $here"
[ "$here" = "$there" ] || fail "digests differ"
[ "$(field "$TEST_TMPDIR/service" applied)" = "$STEPS" ] || fail "not $STEPS steps applied"
finish
