#!/bin/bash
# Checkpoints during a training, taken by hand and automatically. Servers that are killed with -9 in the middle
# leave nothing that could be loaded. A restored run ends in the bits of an undisturbed run. A damaged checkpoint
# is named and skipped for the next older one.
source tests/integration/real_cluster.sh

STEPS=${STEPS:-400}
OPTIONS=(--workers 2 --split 3,5 --steps "$STEPS" --max-grad-norm 0.05)
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
export KAON_CHECKPOINT_EVERY_STEPS=50
export KAON_CHECKPOINT_KEEP=30
mkdir -m 700 "$KAON_CHECKPOINT_DIR"

ctl() { "$KAONCTL" --dir "$DIR" --timeout 60 "$@"; }
reached() { [ "$(steps_done)" -ge "$1" ] || trained; }
steps_done() { cat "$TEST_TMPDIR/log" 2>/dev/null | grep -c '"type": *"step"'; }
trained() { ! kill -0 "$trainer" 2>/dev/null; }
ids() { ctl -o json checkpoint list | python3 -c 'import json, sys; print(*[row["id"] for row in json.load(sys.stdin)["checkpoints"]])'; }

# last_is_taken: fails while the automatic checkpoint of the last step is still being written.
last_is_taken() {
  ctl checkpoint create last >"$TEST_TMPDIR/last" 2>&1 && return
  grep -q "another checkpoint is being written" "$TEST_TMPDIR/last" || { cat "$TEST_TMPDIR/last"; exit 1; }
  return 1
}

# every_one_good WHEN: every checkpoint with a manifest passes verify.
every_one_good() {
  local id
  for id in $(ids); do
    ctl checkpoint verify "$id" >/dev/null || fail "$1: checkpoint $id is not good"
  done
}

start 2 2
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer=$!
wait_for 60 reached 6
ctl checkpoint create first >"$TEST_TMPDIR/first" || fail "create: $(cat "$TEST_TMPDIR/first")"
trained && fail "training ended before a checkpoint was taken"
ctl checkpoint create first && fail "an id was used twice"

# Kills the coordinator, then a shard, while they take a checkpoint.
wait_for 60 reached 10
ctl checkpoint create second >/dev/null 2>&1 &
creating=$!
cluster_kill "$DIR" coordinator
cluster_revive_coordinator "$DIR" 2
wait "$creating" || true
cluster_wait_serving "$DIR"
every_one_good "after the coordinator was killed"
wait_for 60 reached $(($(steps_done) + 2))
ctl checkpoint create third >/dev/null 2>&1 &
creating=$!
cluster_kill "$DIR" shard-1
cluster_revive_shard "$DIR" 1
wait "$creating" || true
cluster_wait_serving "$DIR"
every_one_good "after a shard was killed"

# Restores the first one while both workers run.
wait_for 60 reached 30
ctl checkpoint restore --yes first >"$TEST_TMPDIR/restored" 2>&1 || fail "restore: $(cat "$TEST_TMPDIR/restored")"
wait_for 120 trained
wait "$trainer" || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; fail "kaon-train: exit status $?"; }
grep -q "back to step" "$TEST_TMPDIR/service" || fail "kaon-train was not taken back"
train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}"
here=$(field "$TEST_TMPDIR/local" weights_digest)
there=$(field "$TEST_TMPDIR/service" weights_digest)
echo "service, taken back once, $there, local $here"
[ "$here" = "$there" ] || fail "digests differ"

# Damages the newest.
wait_for 60 last_is_taken || fail "create of an idle job: $(cat "$TEST_TMPDIR/last")"

# P20: every admin action is counted, and logged with the identity of its caller.
ctl -o json status | python3 -c '
import json, sys
status = json.load(sys.stdin)
counted = status["events"]
assert counted["restore"] == 1 and counted["checkpoint_created"] >= 1 and counted["admin_act"] >= 2, counted
assert all(shard["events"]["restore"] == 1 for shard in status["shards"]), status["shards"]' || fail "events"
ctl status --events | grep -q "coordinator  restore  *1$" || fail "status --events: $(ctl status --events)"
grep -q "spiffe://.*/kaon/admin: checkpoint restore first at step .*: OK" "$DIR/coordinator.log" || fail "the restore is not logged"

damaged=$(ls "$KAON_CHECKPOINT_DIR" | grep '^last[.].*shard-00001-of-00002.0000.safetensors$')
python3 - "$KAON_CHECKPOINT_DIR/$damaged" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-3, 2)
    byte = file.read(1)[0]
    file.seek(-3, 2)
    file.write(bytes([byte ^ 4]))
PY
ctl checkpoint verify last >"$TEST_TMPDIR/verify" 2>&1 && fail "a damaged checkpoint passed"
grep -q "DATA_LOSS.*$damaged" "$TEST_TMPDIR/verify" || fail "verify: $(cat "$TEST_TMPDIR/verify")"
ctl -o json checkpoint restore --yes >"$TEST_TMPDIR/newest" || fail "restore of the newest"
ctl -o json digest >"$TEST_TMPDIR/digest"
python3 - "$TEST_TMPDIR/newest" "$TEST_TMPDIR/digest" <<'PY' || fail "restore: $(cat "$TEST_TMPDIR/newest")"
import json, sys
restored, digest = (json.load(open(path)) for path in sys.argv[1:])
assert restored["checkpoint"]["id"] != "last", restored
assert [row["id"] for row in restored["skipped"]].count("last") == 1, restored
assert "safetensors" in [row["problem"] for row in restored["skipped"] if row["id"] == "last"][0], restored
assert restored["checkpoint"]["weights_digest"] == digest["weights_digest"], (restored, digest)
assert restored["timeline"] == digest["timeline"] == 3, (restored, digest)
PY
# These were taken automatically.
ids | grep -q -- "-2-" || fail "none was taken by itself in the second timeline: $(ids)"
stop
finish
