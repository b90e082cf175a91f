#!/bin/bash
# `kaonctl job delete` frees a cluster for another job (ADR 0048), in every mode of durability. The workers of the
# deleted job end with the reason, its memory and its snapshots are gone, and its checkpoints stay. A job of the same
# name with other parameters trains to the bits of a run without servers, also across a kill of every server.
source tests/integration/real_cluster.sh

SHARDS=3
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
mkdir -m 700 "$KAON_CHECKPOINT_DIR"

ctl() { "$KAONCTL" --dir "$DIR" --timeout 30 "$@"; }
# jobs_listed: prints the fields of the only job, or nothing.
jobs_listed() {
  ctl -o json job list | python3 -c '
import json, sys
for row in json.load(sys.stdin)["jobs"]:
    print(row["job"], row["timeline"], row["parameters"], row["workers"])'
}
no_snapshots() { ! compgen -G "$DIR/shard-*/snapshot-*.safetensors" >/dev/null; }
all_deletions_kept() { [ "$(compgen -G "$DIR/shard-*/snapshot-*.meta" | wc -l)" = "$SHARDS" ]; }

restart_all() {
  local shard
  for ((shard = 0; shard < SHARDS; shard++)); do cluster_kill "$DIR" "shard-$shard"; done
  cluster_kill "$DIR" coordinator
  for ((shard = 0; shard < SHARDS; shard++)); do cluster_revive_shard "$DIR" "$shard" || give_up; done
  cluster_revive_coordinator "$DIR" "$SHARDS" || give_up
  wait_for 60 described "$TEST_TMPDIR/status" || give_up
}

# ended_as_deleted RANK: the trainer ended with the reason.
ended_as_deleted() {
  wait_for 60 ended "$1" || give_up
  if wait "${trainer[$1]}"; then fail "rank $1 of the deleted job ended well"; fi
  grep -q 'job "kaon-train" was deleted' "$TEST_TMPDIR/rank-$1" || fail "rank $1: $(tail -n 3 "$TEST_TMPDIR/rank-$1")"
}

# expect_status STATUS ARGUMENTS...
expect_status() {
  local expected=$1 got=0
  shift
  ctl "$@" </dev/null >"$TEST_TMPDIR/said" 2>&1 || got=$?
  [ "$got" = "$expected" ] || fail "kaonctl $*: status $got, expecting $expected: $(cat "$TEST_TMPDIR/said")"
}

# used_bytes: what all shards use together.
used_bytes() {
  wait_for 60 described "$TEST_TMPDIR/status" || give_up
  python3 -c 'import json, sys
print(sum(shard["used_bytes"] for shard in json.load(open(sys.argv[1]))["shards"]))' "$TEST_TMPDIR/status"
}

# one_mode MODE: a whole life in one mode.
one_mode() {
  local used reserved timeline
  export KAON_DURABILITY=$1
  start "$SHARDS" 2
  [ -z "$(jobs_listed)" ] || fail "$1: a job is listed before there is one"
  reserved=$(used_bytes)
  OPTIONS=(--workers 2)
  launch 0 --steps 100000
  launch 1 --steps 100000
  wait_for 60 step_reached 9 || give_up
  [[ "$(jobs_listed)" = "kaon-train 1 "[1-9]*" 2" ]] || fail "$1: $(jobs_listed)"
  ctl checkpoint create "of-${1%%(*}" >/dev/null || fail "$1: no checkpoint"
  expect_status 6 job delete kaon-train
  expect_status 3 job delete other --yes
  step_reached 10 || wait_for 60 step_reached 10 || give_up
  ctl job delete kaon-train --yes >"$TEST_TMPDIR/deleted" || give_up
  grep -q "deleted job kaon-train, at position" "$TEST_TMPDIR/deleted" || fail "$1: $(cat "$TEST_TMPDIR/deleted")"
  ended_as_deleted 0
  ended_as_deleted 1
  [ -z "$(jobs_listed)" ] || fail "$1: still listed: $(jobs_listed)"
  expect_status 3 job delete kaon-train --yes
  expect_status 3 steps
  used=$(used_bytes)
  [ "$used" = "$reserved" ] || fail "$1: $used bytes are still in use, $reserved before the job"
  ctl checkpoint list | grep -q "of-${1%%(*}" || fail "$1: the checkpoint is gone"
  if [ "$1" != none ]; then
    wait_for 60 all_deletions_kept || give_up
    wait_for 60 no_snapshots || give_up
    restart_all
    [ -z "$(jobs_listed)" ] || fail "$1: listed after a restart: $(jobs_listed)"
  fi

  OPTIONS=(--workers 2 --blocks 1)
  launch 0 --steps 20 --stop-after 10
  launch 1 --steps 20 --stop-after 10
  join_trainer 60 0
  join_trainer 60 1
  [ "$(jobs_listed | cut -d ' ' -f 1,2)" = "kaon-train 2" ] || fail "$1: $(jobs_listed)"
  ctl -o json steps --limit 1000 >"$TEST_TMPDIR/steps" || give_up
  python3 - "$TEST_TMPDIR/steps" <<'PY' || fail "$1: steps of the deleted job are shown"
import json, sys
steps = [record["step"] for record in json.load(open(sys.argv[1]))["steps"] if record["kind"] == "train"]
assert steps == list(range(1, 11)), steps
PY
  if [ "$1" != none ]; then restart_all; fi
  launch 0 --steps 20
  launch 1 --steps 20
  join_trainer 60 0
  join_trainer 60 1
  compare 20
  # A job of a checkpoint may begin where another was deleted.
  ctl job delete kaon-train --yes >/dev/null || give_up
  ctl checkpoint restore "of-${1%%(*}" --yes >/dev/null || give_up
  # In mode interval(K) the restart has begun a timeline, too.
  timeline=3
  [[ $1 != interval* ]] || timeline=4
  [ "$(jobs_listed | cut -d ' ' -f 1,2)" = "kaon-train $timeline" ] || fail "$1: $(jobs_listed)"
  stop
}

for mode in journal "interval(4)" none; do one_mode "$mode"; done
finish
