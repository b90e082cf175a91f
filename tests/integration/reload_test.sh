#!/bin/bash
# SIGHUP never ends a server: it reads the log level again and checks the certificates, and training goes on. A server that
# still starts takes the signal once it serves.
source tests/integration/real_cluster.sh
source tests/skipped.sh

export KAON_CONFIG=$TEST_TMPDIR/config.textproto
SERVERS=(shard-0 shard-1 coordinator)
echo 'log_level: "info"' >"$KAON_CONFIG"

# says SERVER TEXT: its log has a line since the last hang_up with the text.
says() { tail -n "+$((${logged[$1]} + 1))" "$DIR/$1.log" | grep -qF -- "$2"; }

# hang_up TEXT: sends SIGHUP to each server, which then logs the text.
declare -A logged
hang_up() {
  local name
  for name in "${SERVERS[@]}"; do
    logged[$name]=$(wc -l <"$DIR/$name.log")
    kill -HUP "$(<"$DIR/$name.pid")"
  done
  for name in "${SERVERS[@]}"; do
    wait_for 60 says "$name" "SIGHUP: $1" || cat "$DIR/$name.log"
  done
}

# step N: trains up to that step.
step() { train "$TEST_TMPDIR/out" --workers 1 --steps "$1" || { cat "$TEST_TMPDIR/out"; cluster_show_logs "$DIR"; exit 1; }; }

start 2 1
pids=$(cat "$DIR"/*.pid)
step 2
! grep -q "decided step" "$DIR"/shard-0.log || fail "a shard logs steps at level info"
echo 'log_level: "debug"' >"$KAON_CONFIG"
hang_up "the log level is set, and the certificates are good"
step 4
for name in shard-0 shard-1; do says "$name" "decided step 4" || fail "$name logs no step at level debug: $(cat "$DIR/$name.log")"; done
echo 'log_level: "loud"' >"$KAON_CONFIG"
hang_up "the configuration cannot be read; everything stays as it is"
echo 'log_level: "info"' >"$KAON_CONFIG"
cp "$DIR/tls/ca.crt" "$TEST_TMPDIR/ca.crt"
echo "no certificate" >"$DIR/tls/ca.crt"
hang_up "the log level is set; tls ca file '$DIR/tls/ca.crt'"
cp "$TEST_TMPDIR/ca.crt" "$DIR/tls/ca.crt"
hang_up "the log level is set, and the certificates are good"
# Certificates are good for a day: the trainer warns, with a line like those of servers.
LD_PRELOAD=$(dpkg -L libfaketime | grep '/libfaketimeMT\.so\.1$') FAKETIME=+20h FAKETIME_DONT_FAKE_MONOTONIC=1 step 6
grep -qE '^[0-9-]+T[0-9:.]+Z W [0-9]+ [a-z_]+\.cc:[0-9]+\] .* expires on ' "$TEST_TMPDIR/out" ||
  fail "kaon-train does not warn with the time: $(head -n 5 "$TEST_TMPDIR/out")"
[ "$(cat "$DIR"/*.pid)" = "$pids" ] || fail "a server was replaced"
"$KAONCTL" --dir "$DIR" health || fail "health"
stop

[ "$failures" -eq 0 ] || finish
strace -o /dev/null true 2>/dev/null || skipped "processes may not be traced here: no signal can be sent to a server that starts"
# survives NAME COMMAND...: gets SIGHUP when it opens its configuration; then serves, and ends with status 0 on SIGTERM.
survives() {
  local name=$1 status=0 tracer
  shift
  rm -f "$DIR/$name.port"
  strace -o /dev/null -P "$KAON_CONFIG" -e trace=openat -e inject=openat:signal=HUP:when=1 \
    "$@" --port-file "$DIR/$name.port" --listen 127.0.0.1:0 --tls-ca-file "$DIR/tls/ca.crt" \
    --tls-certificate-file "$DIR/tls/${name%-*}.crt" --tls-private-key-file "$DIR/tls/${name%-*}.key" >"$TEST_TMPDIR/$name" 2>&1 &
  tracer=$!
  served_or_ended() { [ -s "$DIR/$name.port" ] || ! kill -0 $tracer 2>/dev/null; }
  wait_for 60 served_or_ended || true
  pkill -TERM -P $tracer || true
  wait $tracer || status=$?
  [ $status -eq 0 ] && grep -q "SIGHUP: the log level is set" "$TEST_TMPDIR/$name" ||
    fail "$name got SIGHUP while it started, and ended with status $status: $(cat "$TEST_TMPDIR/$name")"
}
survives shard-0 "$KAON_SHARD" --data-dir "$DIR/shard-0"
survives coordinator "$KAON_COORDINATOR" --shards 127.0.0.1:9
finish
