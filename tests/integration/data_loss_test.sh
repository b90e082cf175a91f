#!/bin/bash
# In durability mode `none` a shard that restarts without its state reports that: the job stops with DATA_LOSS
# naming the shard, the trainer ends with that reason, and nothing is initialised silently.
source tests/integration/real_cluster.sh
export KAON_DURABILITY=none

step_reached() { grep -q "\"step\": *$1[,}]" "$TEST_TMPDIR/log" 2>/dev/null; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }

start 2 1
"$KAONCTL" --dir "$DIR" -o json status >"$TEST_TMPDIR/status"
[ "$(grep -c '"durability": "none"' "$TEST_TMPDIR/status")" -eq 2 ] || fail "durability is not shown: $(cat "$TEST_TMPDIR/status")"
train "$TEST_TMPDIR/service" --workers 1 --steps 1000000 --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
wait_for 60 step_reached 3 || { cat "$TEST_TMPDIR/service"; exit 1; }
pid=$(cat "$DIR/shard-1.pid")
port=$(cat "$DIR/shard-1.port")
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
cluster_start_shard "$DIR" 1 "127.0.0.1:$port"
cluster_wait_port "$DIR" shard-1
wait_for 60 trained || kill "$trainer"
result=0
wait "$trainer" || result=$?
[ "$result" -eq 1 ] || fail "kaon-train ended with exit status $result, expecting 1"
grep -q "DATA_LOSS" "$TEST_TMPDIR/service" && grep -q "shard 1" "$TEST_TMPDIR/service" ||
  fail "the reason does not name DATA_LOSS and shard 1: $(tail -n 5 "$TEST_TMPDIR/service")"
"$KAONCTL" --dir "$DIR" status >"$TEST_TMPDIR/status" || true
grep -qi "stopped" "$TEST_TMPDIR/status" || fail "kaonctl status does not say that the job stopped: $(cat "$TEST_TMPDIR/status")"
if "$KAONCTL" --dir "$DIR" health >"$TEST_TMPDIR/health"; then fail "kaonctl health is content with a stopped job"; fi
[ "$(grep -c NOT_SERVING "$TEST_TMPDIR/health")" -eq 2 ] || fail "coordinator and shard 1 should not serve: $(cat "$TEST_TMPDIR/health")"
[ "$(grep -c "NOT_SERVING .*incarnation" "$TEST_TMPDIR/health")" -eq 2 ] || fail "kaonctl health does not say why: $(cat "$TEST_TMPDIR/health")"
stop
finish
