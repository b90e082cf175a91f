#!/bin/bash
# Kills the coordinator with -9 in the middle of training and starts another in its place. Nothing is lost:
# training continues by itself and ends in the bits of an undisturbed run (protocol.md section 2).
source tests/integration/real_cluster.sh

OPTIONS=(--workers 2 --split 3,5 --steps 40 --max-grad-norm 0.05)

step_reached() { grep -q "\"step\": *$1[,}]" "$TEST_TMPDIR/log" 2>/dev/null; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }

start 2 2
listen=127.0.0.1:$(cat "$DIR/coordinator.port")
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
for step in 5 12 20; do
  wait_for 60 step_reached $step || { cat "$TEST_TMPDIR/service"; exit 1; }
  pid=$(cat "$DIR/coordinator.pid")
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  cluster_start_coordinator "$DIR" 2 "$listen"
  cluster_wait_port "$DIR" coordinator
  echo "coordinator replaced after step $step"
done
wait_for 60 trained
wait "$trainer" || { cat "$TEST_TMPDIR/service"; fail "kaon-train: exit status $?"; }

# The replaced coordinator shows the whole history and every worker's attempts.
wait_for 60 has_history 40 || cluster_show_logs "$DIR"
[ "$(grep -c '"outcome": "apply"' "$TEST_TMPDIR/steps")" -ge 40 ] || fail "history: $(cat "$TEST_TMPDIR/steps")"

# Shards refuse a coordinator that lists them in another order. It reports the shard, the reason, and the remedy.
cluster_kill "$DIR" coordinator
mv "$DIR/shard-0.port" "$DIR/swapped"
mv "$DIR/shard-1.port" "$DIR/shard-0.port"
mv "$DIR/swapped" "$DIR/shard-1.port"
cluster_start_coordinator "$DIR" 2
cluster_wait_port "$DIR" coordinator
for shard in 0 1; do
  why="shard $shard: FAILED_PRECONDITION: this is shard $((1 - shard)) of 2, addressed as shard $shard of 2: start every coordinator"
  wait_for 60 phase_has "$why" || { "$KAONCTL" --dir "$DIR" status; cluster_show_logs "$DIR"; }
done
"$KAONCTL" --dir "$DIR" status >"$TEST_TMPDIR/swapped"
[ "$(grep -c "127.0.0.1:.*this is shard" "$TEST_TMPDIR/swapped")" = 2 ] || fail "the table of shards: $(cat "$TEST_TMPDIR/swapped")"
stop
train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}"
here=$(field "$TEST_TMPDIR/local" weights_digest)
there=$(field "$TEST_TMPDIR/service" weights_digest)
echo "service with 3 kills $there, local $here"
[ "$here" = "$there" ] || fail "digests differ"
[ "$(field "$TEST_TMPDIR/service" applied)" = 40 ] || fail "not 40 steps applied"
finish
