#!/bin/bash
# P20: "no secret or tensor data in logs". Every weight has one value, every gradient another. Even with the most
# verbose logging, and with servers killed on the way, no log has either value or a line of a private key.
source tests/integration/real_cluster.sh

export GLOG_v=9 GLOG_minloglevel=0 GLOG_logbuflevel=-1 GRPC_VERBOSITY=DEBUG
# The values as fp32: 0.0271916 and 0.0314339.
WEIGHT=3cdec0de
GRADIENT=3d00c0de

# marked STEPS: trains up to that step with these values; appends to the log `trainer`.
marked() {
  local values
  values=$(python3 -c '
import struct, sys
print(*(repr(struct.unpack(">f", bytes.fromhex(bits))[0]) for bits in sys.argv[1:]))' $WEIGHT $GRADIENT)
  tests/integration/marked_trainer --connect "127.0.0.1:$(cat "$DIR/coordinator.port")" --tls-dir "$DIR/tls" \
    --weight "${values% *}" --gradient "${values#* }" --steps "$1" >>"$TEST_TMPDIR/trainer" 2>&1 ||
    { cat "$TEST_TMPDIR/trainer"; cluster_show_logs "$DIR"; exit 1; }
}

# The shards refuse another job and log that once a second.
refusal_is_logged() {
  if train "$TEST_TMPDIR/refused" --workers 2 --steps 1; then fail "another job was registered"; fi
  grep -q "RegisterJob of spiffe://kaon.local/kaon/.* refused: ALREADY_EXISTS" "$DIR/coordinator.log"
}

start 2 2
marked 4
# Its next life replays the journal.
cluster_kill "$DIR" shard-1
cluster_revive_shard "$DIR" 1 || { cluster_show_logs "$DIR"; exit 1; }
marked 8
cluster_kill "$DIR" coordinator
cluster_kill "$DIR" shard-0
cluster_revive_shard "$DIR" 0 || { cluster_show_logs "$DIR"; exit 1; }
cluster_revive_coordinator "$DIR" 2 || { cluster_show_logs "$DIR"; exit 1; }
cluster_wait_serving "$DIR"
marked 12
wait_for 30 refusal_is_logged || cluster_show_logs "$DIR"
"$KAONCTL" --dir "$DIR" status --events >"$TEST_TMPDIR/events"
stop
python3 tests/integration/check_logs.py "$DIR/tls" "$WEIGHT,$GRADIENT" "$DIR"/*.log "$TEST_TMPDIR/trainer" "$TEST_TMPDIR/refused" ||
  fail "a log has what no log may have"

# These are the logs of this training.
[ "$(grep -c "spiffe://kaon.local/kaon/.* joins as rank 0" "$DIR/coordinator.log")" -ge 3 ] || fail "the coordinator's log has no joins"
grep -q "call_refused.already_exists" "$TEST_TMPDIR/events" || fail "the refusal is not counted: $(cat "$TEST_TMPDIR/events")"
for log in "$DIR"/shard-?.log; do grep -q "session over shared memory for" "$log" || fail "$log has no session"; done
finish
