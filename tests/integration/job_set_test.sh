#!/bin/bash
# The number of workers belongs to the running job. `kaonctl job set` changes it between two steps, even if a
# worker is gone. A checkpoint of some workers continues with others, whether it is restored into its job or starts
# a new one.
source tests/integration/real_cluster.sh

export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
mkdir -m 700 "$KAON_CHECKPOINT_DIR"
OPTIONS=(--steps 100000)
ctl() { "$KAONCTL" --dir "$DIR" --timeout 60 "$@"; }
# members: prints how many workers the newest step had.
members() {
  ctl -o json steps --limit 5 | python3 -c '
import json, sys
print([len(r["members"]) for r in json.load(sys.stdin)["steps"] if r["kind"] == "train"][-1])'
}
# goes_on WORKERS WHEN: waits for five more steps, the last of so many workers.
goes_on() {
  wait_for 60 step_reached $(($(step_now) + 5)) || give_up
  [ "$(members)" = "$1" ] || fail "$2: the newest step has $(members) workers, expecting $1"
}
# refused CODE WORDS SETTINGS...: kaonctl job set fails and reports why.
refused() {
  local code=$1 words=$2
  shift 2
  if ctl job set "$@" >"$TEST_TMPDIR/refused" 2>&1; then fail "job set $* was taken"; fi
  grep -q "$code" "$TEST_TMPDIR/refused" && grep -q -- "$words" "$TEST_TMPDIR/refused" ||
    fail "job set $*: $(cat "$TEST_TMPDIR/refused"), expecting $code and '$words'"
}

echo "== two"
start 2 4
launch 0 --workers 2
launch 1 --workers 2
goes_on 2 "at first"

echo "== paused"
ctl pause >"$TEST_TMPDIR/set" || give_up
grep -q "paused  *true" "$TEST_TMPDIR/set" || fail "pause: $(cat "$TEST_TMPDIR/set")"
held=$(step_now)
phase_has "step $((held + 1)): paused until kaonctl resume" || fail "paused: $(status_field phase)"
# Nothing else stops for it.
ctl checkpoint create paused >/dev/null || give_up
sleep 1
[ "$(step_now)" = "$held" ] || fail "paused at step $held, now at $(step_now)"
ctl resume >/dev/null || give_up
goes_on 2 "resumed"

echo "== one is lost"
kill_trainer 1
ctl job set world_size=1 >"$TEST_TMPDIR/set" || give_up
grep -q "world_size  *1" "$TEST_TMPDIR/set" || fail "job set: $(cat "$TEST_TMPDIR/set")"
goes_on 1 "without rank 1"
ctl job set world_size=4 worker_loss=shrink worker_loss_seconds=60 >/dev/null || give_up
for rank in 1 2 3; do launch "$rank" --workers 4; done
goes_on 4 "with more"
# The whole output goes to a file, because a reader that exits early would break the pipe.
ctl job show --effective >"$TEST_TMPDIR/effective"
grep -q "world_size  *4  *job set at entry" "$TEST_TMPDIR/effective" || fail "$(cat "$TEST_TMPDIR/effective")"
refused INVALID_ARGUMENT "world_size is 0, must be 1 .. 4096" world_size=0
refused INVALID_ARGUMENT "world_size is \"0x4\"" world_size=0x4
refused INVALID_ARGUMENT "worker_loss_seconds is 1e-09, must be 1" worker_loss_seconds=1e-9
refused INVALID_ARGUMENT "step_seconds is 0.5, must be 1 .. 86400" step_seconds=0.5
refused INVALID_ARGUMENT "step_seconds is 9, must be unset" worker_loss=wait step_seconds=9
refused INVALID_ARGUMENT "one of world_size" max_grad_norm=1
refused ABORTED "expected_revision is 1" world_size=2 --expect-revision 1
ctl checkpoint create four >/dev/null || give_up

echo "== a job of two takes the state of the checkpoint of four"
ctl job set world_size=2 >/dev/null || give_up
for rank in 2 3; do
  wait_for 60 ended "$rank" || give_up
  grep -q "must be 0 .. 1 (the job's world_size is 2)" "$TEST_TMPDIR/rank-$rank" || fail "rank $rank: $(cat "$TEST_TMPDIR/rank-$rank")"
done
goes_on 2 "with less"
ctl checkpoint restore --yes four >/dev/null || give_up
goes_on 2 "restored"
launch 2 --workers 3
wait_for 60 ended 2 || give_up
grep -q "kaonctl job set world_size=3" "$TEST_TMPDIR/rank-2" || fail "a third worker: $(cat "$TEST_TMPDIR/rank-2")"
for rank in 0 1; do kill_trainer "$rank"; done
stop

echo "== a job started from it has the workers of its trainers, who ask for as many as its first job did"
start 2 4
ctl checkpoint restore --yes four >/dev/null || give_up
for rank in 0 1; do launch "$rank" --workers 2; done
goes_on 2 "started from the checkpoint"
for rank in 0 1; do kill_trainer "$rank"; done
stop
finish
