#!/bin/bash
# `kaonctl group set` while kaon-train runs. The new rate is that of the next step and of every later one, and the
# history shows the change in its place. A change that expects an older revision, or has a value out of range, is
# refused and changes nothing.
source tests/integration/real_cluster.sh

step_reached() { grep -q "\"step\": *$1[,}]" "$TEST_TMPDIR/log" 2>/dev/null; }
digests() { "$KAONCTL" --dir "$DIR" -o json status | grep state_digest; }
# quiet: every shard has applied everything that is decided.
quiet() { "$KAONCTL" --dir "$DIR" -o json status | grep '"phase": "step [0-9]*: waiting for rank' >/dev/null; }
# refused CODE WORDS COMMAND...: kaonctl group set fails and reports why.
refused() {
  local code=$1 words=$2
  shift 2
  if "$KAONCTL" --dir "$DIR" group set "$@" >"$TEST_TMPDIR/refused" 2>&1; then
    fail "group set $* was taken"
  fi
  grep -q "$code" "$TEST_TMPDIR/refused" && grep -q -- "$words" "$TEST_TMPDIR/refused" ||
    fail "group set $*: $(cat "$TEST_TMPDIR/refused"), expecting $code and '$words'"
}

start 2 2
train "$TEST_TMPDIR/service" --workers 2 --steps 150 --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
wait_for 60 step_reached 3 || { cat "$TEST_TMPDIR/service"; exit 1; }
"$KAONCTL" --dir "$DIR" -o json group set adamw lr=0.25 adamw.beta1=0.8 --expect-revision 1 >"$TEST_TMPDIR/set" || fail "group set"
wait "$trainer" || { cat "$TEST_TMPDIR/service"; fail "kaon-train: exit status $?"; }
"$KAONCTL" --dir "$DIR" -o json steps --limit 1000 >"$TEST_TMPDIR/steps"
# The whole output goes to a file, because a reader that exits early would break the pipe.
"$KAONCTL" --dir "$DIR" steps --limit 1000 >"$TEST_TMPDIR/table"
grep -q "adamw lr=0.25" "$TEST_TMPDIR/table" || fail "the table of steps shows no change"
python3 tests/integration/check_group_set.py "$TEST_TMPDIR/set" "$TEST_TMPDIR/steps" || fail "history"

wait_for 60 quiet
before=$(digests)
refused ABORTED "expected_revision is 1" adamw lr=0.5 --expect-revision 1
refused ABORTED "the change is in place" adamw lr=0.25 adamw.beta1=0.8 --expect-revision 1
refused INVALID_ARGUMENT "lr is -1, must be 0" adamw lr=-1
refused INVALID_ARGUMENT "adamw.beta1 is \"x\"" adamw adamw.beta1=x
refused INVALID_ARGUMENT "must be one of lr" adamw learning_rate=1
refused INVALID_ARGUMENT "cannot be changed while the job runs" adamw rule=lion
refused NOT_FOUND "muon, adamw" scalars lr=1
[ "$(digests)" = "$before" ] || fail "what was refused changed the state: $before, now $(digests)"

# Without workers there is no step to wait for; kaonctl reads the revision first.
"$KAONCTL" --dir "$DIR" group set muon muon.momentum=0.9 | grep "muon.momentum  *0.9" >/dev/null || fail "group set without a revision"
stop
finish
