#!/bin/bash
# `kaonctl shard drain N --wait`: a rolling restart of all shards while two processes train. Each shard ends between two
# steps with status 0, and its next start replays nothing. No step fails and none is opened twice, and the weights are
# those of an undisturbed run.
source tests/integration/real_cluster.sh

STEPS=100000
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)

steps_done() { cat "$TEST_TMPDIR/log" 2>/dev/null | grep -c '"type": *"step"'; }
reached() { [ "$(steps_done)" -ge "$1" ]; }

# refused STATUS TEXT SHARD: (STATUS is a pattern) a drain of that shard ends so and says that.
refused() {
  local status=0
  "$KAONCTL" --dir "$DIR" shard drain "$3" >"$TEST_TMPDIR/refused" 2>&1 || status=$?
  # shellcheck disable=SC2053  (a pattern)
  [[ $status == $1 ]] || fail "drain of shard $3: exit status $status: $(cat "$TEST_TMPDIR/refused")"
  grep -q "$2" "$TEST_TMPDIR/refused" || fail "drain of shard $3: $(cat "$TEST_TMPDIR/refused")"
}

# drain SHARD: with a supervisor that starts it again.
drain() {
  local status=0
  "$KAONCTL" --dir "$DIR" -o json shard drain "$1" --wait >"$TEST_TMPDIR/drained" 2>"$TEST_TMPDIR/progress" &
  local drain=$! shard first
  shard=$(cat "$DIR/shard-$1.pid")
  wait -n -p first "$shard" $drain || status=$?
  [ "$first" = "$shard" ] || { cat "$TEST_TMPDIR/progress"; give_up; }
  [ $status = 0 ] || fail "shard $1: exit status $status"
  # On a slow machine the other shard, too, may be silent for a moment.
  refused '[14]' "shard $1 is not connected.*once it is back\\|was not heard for" $((($1 + 1) % 3))
  cluster_revive_shard "$DIR" "$1" || give_up
  wait $drain || { cat "$TEST_TMPDIR/progress"; give_up; }
  echo "drained: $(tr -d ' \n' <"$TEST_TMPDIR/drained")"
  grep 'recovery: ' "$DIR/shard-$1.log" | tail -n 1 | grep -q ', 0 of them replayed' ||
    fail "shard $1 replayed: $(grep 'recovery: ' "$DIR/shard-$1.log")"
}

start 3 2
launch 0 --steps "$STEPS" --log-jsonl "$TEST_TMPDIR/log"
launch 1 --steps "$STEPS"
wait_for 60 reached 5 || give_up
refused 3 "shard 3: the shards are 0 .. 2" 3
for shard in 0 1 2; do
  drain $shard
  wait_for 60 reached $(($(steps_done) + 3)) || give_up
  # This count begins anew in a shard that was restarted; no push was cut off in the others.
  "$KAONCTL" --dir "$DIR" -o json status --events >"$TEST_TMPDIR/status" || give_up
  for event in round_reopened push_aborted prepare_withdrawn; do
    ! grep -q "\"$event" "$TEST_TMPDIR/status" || fail "$event after the drain of shard $shard: $(cat "$TEST_TMPDIR/status")"
  done
done
for rank in 0 1; do ! ended $rank || fail "rank $rank ended: $(cat "$TEST_TMPDIR/rank-$rank")"; done
grep -q 'shard drain 2: OK' "$DIR/coordinator.log" || fail "the drain is not logged: $(tail "$DIR/coordinator.log")"

# Every step once, in order.
python3 -c '
import json, sys
steps = [row["step"] for row in map(json.loads, open(sys.argv[1])) if row["type"] == "step"]
assert steps == list(range(1, len(steps) + 1)), steps
print(len(steps), "steps")' "$TEST_TMPDIR/log" || fail "steps of rank 0"
compare_open "$STEPS"
stop
finish
