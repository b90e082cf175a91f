#!/bin/bash
# In durability mode `none` a shard that restarts without its state reports that: the job stops with DATA_LOSS
# naming the shard, the trainer ends with that reason, and nothing is initialised silently. So does a shard that starts
# on an empty disk in mode `journal`. Every text says what to do.
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

# remedy TEXT FILE...: each file has the text.
remedy() {
  local text=$1 file
  shift
  for file in "$@"; do grep -qF "$text" "$file" || fail "$file does not say '$text': $(tail -n 5 "$file")"; done
}
for command in status health; do
  "$KAONCTL" --dir "$DIR" --shard "127.0.0.1:$port" $command >"$TEST_TMPDIR/shard-$command" || true
done
remedy "to go on, start this shard on an empty data directory and run: kaonctl checkpoint restore" \
  "$TEST_TMPDIR"/{service,status,health,shard-status,shard-health} "$DIR"/{coordinator,shard-1}.log
stop

export KAON_DURABILITY=journal
start 2 1
train "$TEST_TMPDIR/service" --workers 1 --steps 5
cluster_kill "$DIR" shard-1
rm -r "$DIR/shard-1"
cluster_revive_shard "$DIR" 1
wait_for 60 phase_has stopped
"$KAONCTL" --dir "$DIR" status >"$TEST_TMPDIR/status"
"$KAONCTL" --dir "$DIR" health >"$TEST_TMPDIR/health" && fail "kaonctl health is content with an empty shard"
train "$TEST_TMPDIR/service" --workers 1 --steps 10 && fail "training goes on with an empty shard"
remedy "shard 1: lost its state: it has applied position 0, shard 0 has applied 7; to go on from the newest checkpoint, run: kaonctl checkpoint restore" \
  "$TEST_TMPDIR"/{service,status,health} "$DIR/coordinator.log"
stop
finish
