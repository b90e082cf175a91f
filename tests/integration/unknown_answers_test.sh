#!/bin/bash
# kaonctl on a cluster with a dead shard, and with the certificates of a reader, a checkpointer and a worker. A command
# that cannot see something says so and fails; it never shows a zero or "healthy" for it.
source tests/integration/real_cluster.sh
export KAON_EXTRA_CERTIFICATES="reader=reader checkpointer=checkpointer"
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
mkdir -m 700 "$KAON_CHECKPOINT_DIR"

# as NAME COMMAND...: kaonctl with a certificate of the cluster.
as() {
  local name=$1
  shift
  "$KAONCTL" --endpoints "127.0.0.1:$(cat "$DIR/coordinator.port")" --ca "$DIR/tls/ca.crt" --cert "$DIR/tls/$name.crt" \
    --key "$DIR/tls/$name.key" --timeout 20 "$@"
}

# expect STATUS WORDS COMMAND...: the command ends with the status and its output contains the words.
expect() {
  local wanted=$1 words=$2 status=0
  shift 2
  "$@" </dev/null >"$TEST_TMPDIR/answer" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || fail "$*: exit status $status, expecting $wanted: $(cat "$TEST_TMPDIR/answer")"
  grep -qF -- "$words" "$TEST_TMPDIR/answer" || fail "$*: no '$words' in $(cat "$TEST_TMPDIR/answer")"
}

start 2 1
train "$TEST_TMPDIR/service" --workers 1 --steps 5 || { cat "$TEST_TMPDIR/service"; exit 1; }
first=127.0.0.1:$(cat "$DIR/shard-0.port")
second=127.0.0.1:$(cat "$DIR/shard-1.port")

# Live commands, without a terminal. The steps have a rate, and each shard has phases.
expect 0 "kaon-train: step 5, " as reader top -n 2 --interval 0.1
[ "$(grep -c "steps/s" "$TEST_TMPDIR/answer")" -eq 2 ] || fail "top -n 2: $(cat "$TEST_TMPDIR/answer")"
grep -q $'\033' "$TEST_TMPDIR/answer" && fail "top writes escapes without a terminal"
as reader top --once -o json | python3 -c '
import json, sys
top = json.loads(sys.stdin.read())
assert top["steps_per_second"] > 0 and top["workers"] is not None, top
for shard in top["shards"]:
    assert shard["resident_bytes"] > 0 and shard["pushed_bytes_per_second"] is not None, shard
    assert shard["step_seconds"] > 0 and shard["phase_seconds"]["apply"] > 0 and shard["used_bytes"] > 0, shard' ||
  fail "top -o json"
# Not by `as`, whose subshell would take the signal.
"$KAONCTL" --endpoints "127.0.0.1:$(cat "$DIR/coordinator.port")" --ca "$DIR/tls/ca.crt" --cert "$DIR/tls/reader.crt" \
  --key "$DIR/tls/reader.key" events --watch=0.2 -o json >"$TEST_TMPDIR/events" 2>"$TEST_TMPDIR/events.errors" &
watcher=$!
# The first answer counts as seen, so an act may come too early to be new.
new_event() {
  as admin job set worker_loss=shrink worker_loss_seconds=$((RANDOM % 1000 + 1)) >/dev/null 2>&1
  grep -q '"event":"group_change"' "$TEST_TMPDIR/events"
}
wait_for 60 new_event || fail "events --watch: $(cat "$TEST_TMPDIR/events" "$TEST_TMPDIR/events.errors")"
kill -INT $watcher || fail "events --watch has ended"
wait $watcher || fail "Ctrl-C of events --watch: status $?"

# A reader sees all that an admin sees, and may change nothing.
for command in status "status --events" events "top --once" "job show" "job show --effective" parameters steps \
  "steps --phases" digest backend health "worker list"; do
  # shellcheck disable=SC2086
  as reader $command -o yaml >"$TEST_TMPDIR/answer" 2>&1 || fail "reader, $command: $(cat "$TEST_TMPDIR/answer")"
done
expect 0 "127.0.0.1" as reader health
[ "$(grep -cw SERVING "$TEST_TMPDIR/answer")" -eq 3 ] || fail "a reader's health: $(cat "$TEST_TMPDIR/answer")"
expect 2 "reader" as reader job set world_size=2
expect 2 "reader" as reader log set debug
expect 2 "reader" as reader config

# A checkpointer takes, lists and verifies checkpoints, sees the status, and may do nothing else.
for command in "checkpoint create nightly" "checkpoint list" "checkpoint verify nightly" status health; do
  # shellcheck disable=SC2086
  as checkpointer $command >"$TEST_TMPDIR/answer" 2>&1 || fail "checkpointer, $command: $(cat "$TEST_TMPDIR/answer")"
done
expect 2 "role checkpointer" as checkpointer checkpoint restore nightly --yes
expect 2 "role checkpointer" as checkpointer checkpoint delete nightly --yes
expect 2 "role checkpointer" as checkpointer job set world_size=2
expect 2 "role checkpointer" as checkpointer steps
expect 2 "role reader" as reader checkpoint create mine
grep -q "spiffe://kaon.local/kaon/checkpointer: checkpoint create nightly: OK" "$DIR/coordinator.log" ||
  fail "no audit line of the checkpointer"

# Log levels and configurations of all servers, by an admin alone.
expect 0 "shard 1" as admin log set debug
expect 0 "" as admin job set worker_loss=shrink worker_loss_seconds=2000
for name in shard-0 shard-1; do
  wait_for 30 grep -q "decided .*group" "$DIR/$name.log" || cat "$DIR/$name.log"
done
expect 0 "debug" as admin --shard "$second" log set info
for name in coordinator shard-0 shard-1; do
  grep -q "spiffe://kaon.local/kaon/admin: SetLogLevel debug: OK" "$DIR/$name.log" || fail "$name has no audit line"
done
expect 0 "data_dir: \"$DIR" as admin config
grep -qF 'private_key_file: "(redacted)"' "$TEST_TMPDIR/answer" || fail "config: $(cat "$TEST_TMPDIR/answer")"

# Tools that know gRPC's reflection list the services to an admin alone.
for server in coordinator shard-0; do
  tests/integration/list_services "127.0.0.1:$(cat "$DIR/$server.port")" "$DIR/tls" admin "${server%-0}" \
    >"$TEST_TMPDIR/services" 2>&1 || fail "$server lists no services: $(cat "$TEST_TMPDIR/services")"
  grep -qx kaon.v1.ServerProcess "$TEST_TMPDIR/services" || fail "$server lists $(cat "$TEST_TMPDIR/services")"
  for role in reader checkpointer; do
    if tests/integration/list_services "127.0.0.1:$(cat "$DIR/$server.port")" "$DIR/tls" $role "${server%-0}" \
      >"$TEST_TMPDIR/services" 2>&1; then
      fail "$server lists services to a $role"
    fi
    grep -q PERMISSION_DENIED "$TEST_TMPDIR/services" || fail "refused with $(cat "$TEST_TMPDIR/services")"
  done
done
expect 5 "shards cannot be listed" as worker-0 health
expect 5 '"healthy": false' as worker-0 health -o json
expect 3 'the job here is "kaon-train"' as admin --job other status
expect 3 'NOT_FOUND' as admin --job other digest
expect 0 "SERVING" as reader --shard "$second" health
expect 0 "kaon-train" as reader --shard "$second" status
expect 3 "holds \"kaon-train\"" as reader --shard "$second" --job other status
steps=$(as admin steps -o json | grep -c '"decided": "20') || true
[ "$steps" -ge 5 ] || fail "only $steps steps have a time"

cluster_kill "$DIR" shard-1
expect 4 "shard $second" as reader health
expect 4 '"updates_applied": null' as admin parameters -o json
expect 4 "shard 1 did not tell it" as admin parameters
expect 4 "shard 1 at $second" as admin backend
expect 4 "shard 1      unknown" as admin status --events
expect 4 "shard 1: " as admin steps --phases
expect 4 "shard 1 at $second" as admin top --once
grep -qE "^ +1 +- +- " "$TEST_TMPDIR/answer" || fail "top has numbers of a dead shard: $(cat "$TEST_TMPDIR/answer")"
expect 4 "shard 1" as admin digest
expect 0 "-" as admin status
grep -qE "$second  no   *- +- " "$TEST_TMPDIR/answer" || fail "a dead shard has numbers: $(cat "$TEST_TMPDIR/answer")"
expect 0 "SERVING" as reader --shard "$first" health
expect 4 "$second" as reader --shard "$second" health
expect 4 "$second" as reader --shard "$second" status

# Steps since its start are fewer than those of the shard that lived on; the table says which they are.
cluster_revive_shard "$DIR" 1
wait_for 60 as reader health >/dev/null 2>&1
expect 0 "APPLIED SINCE START" as admin status -o wide
stop
finish
