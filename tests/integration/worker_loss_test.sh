#!/bin/bash
# T21: kills a trainer with -9 in the middle of training and restarts it, under each policy for lost workers. Under
# the policies that do not wait, it also kills itself before, in the middle of and at the end of a push, over
# either transport. Under shrink, a process takes its place that is heard all the time and pushes nothing. The
# weights are those of a run without servers that leaves out the same members: never a part of a contribution.
source tests/integration/real_cluster.sh

OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
# How long a step waits for a lost worker, and how long after that it has ended, one way or the other.
PATIENCE_MS=1000
GRACE_MS=1000
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# in_time WHAT SINCE_MS: it is so now, at most patience and grace after the worker's death.
in_time() {
  local took=$(($(now_ms) - $2)) allowed=$((PATIENCE_MS + $(stretched $GRACE_MS)))
  echo "$1: $took ms after the death of rank 1"
  [ "$took" -le "$allowed" ] || fail "$1: after $took ms, expecting at most $allowed"
}

# history: prints one line per train step: number, ranks.
history() {
  "$KAONCTL" --dir "$DIR" -o json steps --limit 1000 | python3 -c '
import json, sys
for record in json.load(sys.stdin)["steps"]:
    if record["kind"] == "train":
        print(record["step"], *[member["rank"] for member in record["members"]])'
}

# without_rank_1 FILE: prints the options that leave the same steps of rank 1 out of a run without servers.
without_rank_1() { awk '$2 == 0 && NF == 2 {print "--absent 1:" $1 "-" $1}' "$1"; }

echo "== wait"
start 2 2
launch 0 --steps 40
launch 1 --steps 40
wait_for 60 step_reached 10 || give_up
kill_trainer 1
# This is longer than the other policies below wait. A complete step may still be decided, but no further one.
held=$(step_now)
sleep 2
[ "$(step_now)" -le $((held + 1)) ] || fail "wait: went on without rank 1"
launch 1 --steps 40
join_trainer 60 0
join_trainer 60 1
[ "$(history | awk 'NF != 3' | wc -l)" = 0 ] || fail "wait: a step with fewer members: $(history)"
stop
compare 40

echo "== shrink"
STEPS=${STEPS:-400}
start 2 2
launch 0 --steps "$STEPS" --worker-loss shrink --worker-loss-seconds 1
launch 1 --steps "$STEPS" --worker-loss shrink --worker-loss-seconds 1
wait_for 60 step_reached 10 || give_up
killed=$(now_ms)
kill_trainer 1
held=$(step_now)
# The next step may have been complete already.
wait_for 60 step_reached $((held + 2)) || give_up
in_time "shrink: a step without it" "$killed"
wait_for 60 phase_has "without rank 1 (lost)" || give_up
launch 1 --steps "$STEPS" --worker-loss shrink --worker-loss-seconds 1
join_trainer 120 0
join_trainer 60 1
history >"$TEST_TMPDIR/history"
alone=$(awk 'NF == 2 && $2 == 0 {print $1}' "$TEST_TMPDIR/history")
first=$(head -n 1 <<<"$alone")
last=$(tail -n 1 <<<"$alone")
echo "rank 0 alone from step ${first:-none} to ${last:-none} of $STEPS"
[ -n "$first" ] || fail "shrink: every step had both ranks"
[ "$(wc -l <<<"$alone")" = $((last - first + 1)) ] || fail "shrink: rank 1 came and went"
[ "$last" -lt "$STEPS" ] || fail "shrink: rank 1 never took part again"
stop
compare "$STEPS" --absent "1:$first-$last"

echo "== shrink, a process in the place of rank 1 is heard all the time and pushes nothing"
LOSS=(--steps "$STEPS" --worker-loss shrink --worker-loss-seconds 60)
start 2 2
launch 0 "${LOSS[@]}"
wait_for 60 phase_has "step 1: waiting for rank 1" || give_up
: >"$TEST_TMPDIR/holder"
tests/integration/step_holder "127.0.0.1:$(cat "$DIR/coordinator.port")" "$DIR/tls" kaon-train 1 >>"$TEST_TMPDIR/holder" 2>&1 &
holder=$!
wait_for 60 grep -q holds "$TEST_TMPDIR/holder" || { cat "$TEST_TMPDIR/holder"; give_up; }
wait_for 60 grep -q "rank 1 was taken 4 times in short order" "$TEST_TMPDIR/holder" ||
  fail "it joined as it liked: $(cat "$TEST_TMPDIR/holder")"
[ "$(step_now)" = 0 ] || fail "a step without the gradients of rank 1"
"$KAONCTL" --dir "$DIR" job set step_seconds=1 >/dev/null || give_up
wait_for 60 step_reached 3 || give_up
grep -q "rank 1 is lost: the job goes on without it; step 1 waited 1 s for its gradients (step_seconds)" "$DIR"/coordinator*.log ||
  fail "the coordinator does not say why rank 1 was lost"
kill "$holder"
wait "$holder" 2>/dev/null || true
launch 1 "${LOSS[@]}"
join_trainer 60 0
join_trainer 60 1
history >"$TEST_TMPDIR/history"
[ "$(awk 'NF == 3' "$TEST_TMPDIR/history" | wc -l)" -gt 0 ] || fail "the restarted rank 1 never took part"
stop
# shellcheck disable=SC2046
compare "$STEPS" $(without_rank_1 "$TEST_TMPDIR/history")

echo "== fail"
start 2 2
launch 0 --steps 400 --worker-loss fail --worker-loss-seconds 1
launch 1 --steps 400 --worker-loss fail --worker-loss-seconds 1
wait_for 60 step_reached 10 || give_up
killed=$(now_ms)
kill_trainer 1
wait_for 60 ended 0 || give_up
in_time "fail: the end of rank 0" "$killed"
if wait "${trainer[0]}"; then fail "fail: rank 0 says that all is well"; fi
grep -q "rank 1 was lost" "$TEST_TMPDIR/rank-0" || fail "fail: $(cat "$TEST_TMPDIR/rank-0")"
phase_has "stopped: FAILED_PRECONDITION: rank 1 was lost" || fail "fail: $(status_field phase)"
# The trained weights are still there.
"$KAONCTL" --dir "$DIR" digest >/dev/null || fail "fail: no digest"
launch 1 --steps 400 --worker-loss fail --worker-loss-seconds 1
wait_for 60 ended 1 || give_up
grep -q "rank 1 was lost" "$TEST_TMPDIR/rank-1" || fail "fail: rank 1 again: $(cat "$TEST_TMPDIR/rank-1")"
stop

# Each point is passed once or more in a step, so rank 1 dies in one of the first ten.
DEATHS=(worker_begin:8 worker_chunk_sent:15 worker_finish_push:16)
STEPS=20

# train_until_death POINT POLICY: trains two ranks, of which rank 1 dies there.
train_until_death() {
  local options=(--steps "$STEPS" --worker-loss "$2" --worker-loss-seconds 1)
  start 2 2
  launch 0 "${options[@]}"
  KAON_FAILPOINT=$1 launch 1 "${options[@]}"
  wait_for 60 ended 1 || give_up
  grep -q "^KAON_FAILPOINT ${1%:*}:" "$TEST_TMPDIR/rank-1" || fail "rank 1 did not die at $1: $(cat "$TEST_TMPDIR/rank-1")"
}

for death in "${DEATHS[@]}"; do
  echo "== shrink, rank 1 dies at $death"
  train_until_death "$death" shrink
  join_trainer 60 0
  history >"$TEST_TMPDIR/history"
  with=$(awk 'NF == 3 {last = $1} END {print last + 0}' "$TEST_TMPDIR/history")
  echo "rank 1 took part up to step $with of $STEPS"
  [ "$with" -le 10 ] || fail "shrink, $death: rank 1 is a member of step $with"
  [ "$(wc -l <"$TEST_TMPDIR/history")" = "$STEPS" ] || fail "shrink, $death: $(cat "$TEST_TMPDIR/history")"
  stop
  # shellcheck disable=SC2046
  compare "$STEPS" $(without_rank_1 "$TEST_TMPDIR/history")

  echo "== fail, rank 1 dies at $death"
  TRANSPORT=grpc train_until_death "$death" fail
  wait_for 60 ended 0 || give_up
  grep -q "rank 1 was lost" "$TEST_TMPDIR/rank-0" || fail "fail, $death: $(cat "$TEST_TMPDIR/rank-0")"
  phase_has "stopped: FAILED_PRECONDITION: rank 1 was lost" || fail "fail, $death: $(status_field phase)"
  compare_newest "$STEPS"
  stop
done
finish
