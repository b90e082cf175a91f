#!/bin/bash
# The weights of a service run equal those of `kaon-train --local` bit for bit. The cases are 1, 2 and 3 shards, 1,
# 2 and 3 workers with equal and unequal splits of the batch, more shards than parameters, every wire dtype, one
# step skipped, and clipping active. Other cases clip Muon, too, by one norm and down to a floor, and normalise
# with an eps; and use 1, 2 and 8 compute threads.
source tests/integration/real_cluster.sh

# This limit clips the AdamW group in every step.
OPTIONS=(--steps 8 --max-grad-norm 0.05 --poison-step 3)

# compare SHARDS WORKERS OPTIONS...
compare() {
  local shards=$1 workers=$2 here there policy
  shift 2
  start "$shards" "$workers"
  train "$TEST_TMPDIR/service" --workers "$workers" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" "$@" || {
    cat "$TEST_TMPDIR/service"
    fail "kaon-train with $shards shards, $workers workers $*"
    return
  }
  "$KAONCTL" --dir "$DIR" -o json steps >"$TEST_TMPDIR/steps"
  stop
  train_local "$TEST_TMPDIR/local" --workers "$workers" "${OPTIONS[@]}" "$@"
  there=$(field "$TEST_TMPDIR/service" weights_digest)
  here=$(field "$TEST_TMPDIR/local" weights_digest)
  echo "$shards shards, $workers workers $*: service $there, local $here"
  [ "$there" = "$here" ] || fail "digests differ: $shards shards, $workers workers $*"
  [ "$(field "$TEST_TMPDIR/service" applied)" = 7 ] || fail "applied is not 7"
  [ "$(field "$TEST_TMPDIR/service" skipped)" = 1 ] || fail "skipped is not 1"
  policy=exempt
  [[ " $* " != *" --muon-clip-policy clip "* ]] || policy=clip
  python3 tests/integration/check_steps.py "$TEST_TMPDIR/steps" "$policy" || fail "step history, $shards shards"
  digests+=("$workers $* $there")
}

digests=()
for shards in 1 2 3; do
  compare $shards 1
  compare $shards 2 --split 3,5
  compare $shards 3 --split 1,2,3
done
# TRANSPORT=auto is the default of kaon-train.
TRANSPORT=auto compare 3 3 --split 1,2,3
[ "$(field "$TEST_TMPDIR/service" shm_bytes)" -gt 0 ] || fail "nothing went through shared memory"
compare 2 2
[ "$(field "$TEST_TMPDIR/service" shm_bytes)" = 0 ] || fail "not all went over the network"
compare 14 2
compare 2 2 --push-dtype bfloat16 --pull-dtype float16
compare 3 2 --push-dtype float16 --pull-dtype bfloat16
# The norm is about 1, so the floor holds in every step.
compare 2 2 --clip-scope all --muon-clip-policy clip --norm-mode add_eps --clip-floor 0.25
compare 2 2 --group-multiplier muon=0.5 --group-multiplier adamw=0.1
# T17: matrices and arrays of several pieces each, with 1, 2 and 8 compute threads.
SMALL=(--hidden 416 --embedding 8 --batch-size 96 --report-every 1)
for threads in 1 2 8; do KAON_THREADS=$threads compare 1 1; done

# Runs with other numbers of shards and threads are equal: of 9 + 1 + 6 + 3 runs, 9 are different.
[ "$(printf '%s\n' "${digests[@]}" | sort -u | wc -l)" -eq 9 ] || fail "digests: ${digests[*]}"
finish
