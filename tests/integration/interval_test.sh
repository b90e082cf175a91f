#!/bin/bash
# Mode interval(K), protocol.md section 3: "at most K steps: after a shard loss the timeline is bumped
# automatically to the newest step snapshotted on EVERY shard (keep two), workers get Rewind". Kills shards with -9
# alone, all at once, and in the middle of a rollback. kaon-train continues by itself each time and ends in the
# bits of an undisturbed run.
source tests/integration/real_cluster.sh

# There is no time for so many: the trainers are stopped in the end, wherever they are.
STEPS=100000
INTERVAL=8
OPTIONS=(--workers 2 --split 3,5 --max-grad-norm 0.05)
export KAON_DURABILITY="interval($INTERVAL)"

steps_done() { cat "$TEST_TMPDIR/log" 2>/dev/null | grep -c '"type": *"step"'; }
reached() { [ "$(steps_done)" -ge "$1" ] || ended 0 || ended 1; }
dead() { ! cluster_alive "$DIR" "$1"; }
# timeline: prints the timeline of the newest entry; 0 while no server can tell.
timeline() {
  { "$KAONCTL" --dir "$DIR" --timeout 5 -o json steps --limit 1 2>/dev/null || echo '{"steps": []}'; } |
    python3 -c 'import json, sys; print(max([0] + [record["timeline"] for record in json.load(sys.stdin)["steps"]]))'
}
timeline_above() { [ "$(timeline)" -gt "$1" ]; }

# strike NAME...: kills servers at once, restarts them, and waits until the job is in another timeline.
strike() {
  local name before
  before=$(timeline)
  for name in "$@"; do cluster_kill "$DIR" "$name"; done
  for name in "$@"; do
    case "$name" in
      shard-*) cluster_revive_shard "$DIR" "${name#shard-}" || give_up ;;
      coordinator) cluster_revive_coordinator "$DIR" 2 || give_up ;;
    esac
  done
  go_on "$before" "$*"
}

# go_on TIMELINE WHAT
go_on() {
  local before=$1
  wait_for 60 timeline_above "$before" || give_up
  wait_for 60 reached $(($(steps_done) + 5)) || give_up
  if ended 0 || ended 1; then give_up; fi
  echo "$2 killed: timeline $before became $(timeline)"
}

start 2 2
launch 0 --steps "$STEPS" --log-jsonl "$TEST_TMPDIR/log"
launch 1 --steps "$STEPS"
wait_for 60 reached 3
strike shard-1
wait_for 60 reached 12
strike shard-0
strike shard-0 shard-1
strike shard-1 coordinator
# Kills a shard in the middle of a rollback: its plan received, its vote in flight to the disk, before and after
# its state is loaded.
for point in shard_plan_received shard_reserve_begin shard_prepare_appended shard_prepared_sent apply_begin apply_end; do
  before=$(timeline)
  cluster_kill "$DIR" shard-1
  KAON_FAILPOINT=$point cluster_revive_shard "$DIR" 1 || give_up
  wait_for 60 dead shard-1 || give_up
  cluster_revive_shard "$DIR" 1 || give_up
  go_on "$before" "shard-1, and again at $point,"
done
strike shard-0 shard-1 coordinator

wait_for 60 described "$TEST_TMPDIR/status" || { cat "$TEST_TMPDIR/status"; give_up; }
python3 - "$TEST_TMPDIR/status" "$INTERVAL" <<'PY' || fail "status: $(cat "$TEST_TMPDIR/status")"
import json, sys
for shard in json.load(open(sys.argv[1]))["shards"]:
    assert shard["durability"] == f"interval({sys.argv[2]})", shard
    assert shard["steps_behind_snapshot"] <= int(sys.argv[2]) and not shard["rollback_needed"], shard
    assert shard["read_only_reason"] == "" and shard["problem"] == "", shard
PY
"$KAONCTL" --dir "$DIR" status | grep -q "interval($INTERVAL)" || fail "the mode is not shown"
# Steps that each rollback lost, as the trainer saw them: a step followed by an earlier one. A step that was
# decided when its shards died may have no line of its own: the trainer learns it from the rollback to it.
python3 - "$TEST_TMPDIR/log" "$INTERVAL" <<'PY' || fail "the trainer lost too much"
import json, sys
steps = [row["step"] for row in map(json.loads, open(sys.argv[1])) if row["type"] == "step"]
lost = [last - step + 1 for last, step in zip(steps, steps[1:]) if step != last + 1]
print("steps lost in rollbacks that took any:", lost)
assert all(steps == -1 or 1 <= steps <= int(sys.argv[2]) for steps in lost), lost
PY
"$KAONCTL" --dir "$DIR" -o json steps --limit 1000 >"$TEST_TMPDIR/steps"
python3 - "$TEST_TMPDIR/steps" "$INTERVAL" <<'PY' || fail "history: $(head -c 2000 "$TEST_TMPDIR/steps")"
import json, re, sys
records = json.load(open(sys.argv[1]))["steps"]
rollbacks = [record for record in records if record["kind"] == "rollback"]
assert rollbacks, records
for record in rollbacks:
    print(record["position"], record["reason"])
    assert "restarted" in record["reason"], record
    lost = re.search(r"steps (\d+) \.\. (\d+) are lost", record["reason"])
    assert lost is None or int(lost[2]) - int(lost[1]) < int(sys.argv[2]), record
PY
compare_open "$STEPS"
grep -q "back to step" "$TEST_TMPDIR/rank-0" || fail "kaon-train was not taken back"
stop
finish
