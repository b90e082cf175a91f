#!/bin/bash
# A shard loses its disk during training and starts empty. A restore takes it in again, and the others keep their data
# directories. The run then ends in the bits of an undisturbed one, and the journals can be replayed.
source tests/integration/real_cluster.sh

OPTIONS=(--workers 2 --split 3,5 --steps 100000 --max-grad-norm 0.05)
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
mkdir -m 700 "$KAON_CHECKPOINT_DIR"

ctl() { "$KAONCTL" --dir "$DIR" --timeout 60 "$@"; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }

for KAON_DURABILITY in journal "interval(4)"; do
  echo "== $KAON_DURABILITY"
  export KAON_DURABILITY
  rm -f "$KAON_CHECKPOINT_DIR"/*
  start 2 2
  train "$TEST_TMPDIR/service" "${OPTIONS[@]}" &
  trainer=$!
  wait_for 60 step_reached 5
  ctl checkpoint create kept >"$TEST_TMPDIR/created" || fail "create: $(cat "$TEST_TMPDIR/created")"
  wait_for 60 step_reached $(($(step_now) + 5))
  cluster_kill "$DIR" shard-1
  rm -r "$DIR/shard-1"
  cluster_revive_shard "$DIR" 1
  wait_for 60 trained
  wait "$trainer" && fail "training goes on without a state"
  # A worker may ask the empty shard before the coordinator has read it.
  grep -qE '(DATA_LOSS|its state is lost).* kaonctl checkpoint restore' "$TEST_TMPDIR/service" ||
    fail "not told what to do: $(tail -n 3 "$TEST_TMPDIR/service")"
  ctl checkpoint restore --yes >"$TEST_TMPDIR/restored" 2>&1 || fail "restore: $(cat "$TEST_TMPDIR/restored")"
  last=$(($(grep -oP '^restored step \K[0-9]+' "$TEST_TMPDIR/restored") + 20))
  # Both start from what their disks have now: entries are left out in both logs.
  for shard in 0 1; do
    cluster_kill "$DIR" shard-$shard
    cluster_revive_shard "$DIR" $shard
  done
  cluster_wait_serving "$DIR"
  train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --stop-after "$last" || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; fail "kaon-train: exit status $?"; }
  train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}" --stop-after "$last"
  here=$(field "$TEST_TMPDIR/local" weights_digest)
  there=$(field "$TEST_TMPDIR/service" weights_digest)
  echo "restored $there, local $here"
  [ "$here" = "$there" ] || fail "digests differ"
  ctl -o json steps --limit 1000 >"$TEST_TMPDIR/steps"
  grep -q '"kind": "restore"' "$TEST_TMPDIR/steps" || fail "no restore in the history: $(grep '"kind"' "$TEST_TMPDIR/steps" | head)"
  stop
done
finish
