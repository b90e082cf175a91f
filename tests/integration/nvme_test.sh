#!/bin/bash
# Parameters in a file: a job whose parameters all live there, and one with memory for some of them, end in the bits
# of a run in memory, with 1, 2 and 3 shards, over kills and from a checkpoint. A shard without a disk refuses a
# group that asks for one.
source tests/integration/real_cluster.sh

STEPS=24
OPTIONS=(--workers 2 --split 3,5 --steps "$STEPS" --max-grad-norm 0.05 --poison-step 3)
export KAON_SHM_SESSIONS=0
unset_nvme() { unset KAON_NVME_BYTES KAON_HOST_MEMORY_BYTES KAON_NVME_STAGING_BYTES KAON_NVME_IO; }
# Every parameter is pinned, read and written many times: staging has room for a few, and for some of the sums.
use_nvme() {
  export KAON_NVME_BYTES=$((16 << 20)) KAON_NVME_STAGING_BYTES=$((224 << 10)) KAON_NVME_IO=auto
}

# homes: prints how many parameters live in which tier.
homes() {
  "$KAONCTL" --dir "$DIR" -o json parameters | python3 -c '
import collections, json, sys
print(dict(sorted(collections.Counter(row["tier"] for row in json.load(sys.stdin)["parameters"]).items())))'
}

# expect_digest WHAT [LOCAL]: the run in the file `service` ended as the one in that file, `local` by default.
expect_digest() {
  local there here
  there=$(field "$TEST_TMPDIR/service" weights_digest)
  here=$(field "$TEST_TMPDIR/${2:-local}" weights_digest)
  echo "$1: service $there, local $here, $(homes)"
  [ "$here" = "$there" ] || fail "$1: digests differ"
}

train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}"
for shards in 1 2 3; do
  use_nvme
  [ "$shards" != 2 ] || export KAON_NVME_IO=threads
  start "$shards" 2
  train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --tier nvme || { cat "$TEST_TMPDIR/service"; give_up; }
  expect_digest "$shards shards, all in the file, $(grep -o "read and written by .*" "$DIR/shard-0.log")"
  [[ $(homes) == "{'nvme': "* ]] || fail "not all are in the file: $(homes)"
  stop
done

# Another shard may not use its file, and a file that does not fit is refused.
start 1 2
mkdir -m 700 "$TEST_TMPDIR/other"
# refused_by FAULT OPTIONS...
refused_by() {
  local fault=$1 status=0
  shift
  timeout 30 "$KAON_SHARD" --data-dir "$TEST_TMPDIR/other" "$@" >"$TEST_TMPDIR/said" 2>&1 || status=$?
  [[ $status = 1 && $(cat "$TEST_TMPDIR/said") = *"$fault"* ]] || fail "$* ended with $status and said: $(cat "$TEST_TMPDIR/said")"
}
refused_by "$DIR/shard-0-nvme/kaon-parameters: another shard is using it" --nvme-dirs "$DIR/shard-0-nvme"
refused_by "its file system has" --nvme-dirs "$TEST_TMPDIR" --nvme-bytes $((1 << 50))
[ ! -e "$TEST_TMPDIR/kaon-parameters" ] || fail "a refused file is left"

# The file is damaged: the shard finds it before it uses a byte, ends, and goes on from its journal. The run is long
# enough to be damaged in its middle.
LONG=(--workers 2 --split 3,5 --steps 240 --max-grad-norm 0.05 --poison-step 3)
train_local "$TEST_TMPDIR/long" "${LONG[@]}"
: >"$TEST_TMPDIR/log"
train "$TEST_TMPDIR/service" "${LONG[@]}" --tier nvme --log-jsonl "$TEST_TMPDIR/log" &
trainer_pid=$!
trained() { ! kill -0 "$trainer_pid" 2>/dev/null; }
reached() { [ "$(grep -c '"type": *"step"' "$TEST_TMPDIR/log")" -ge "$1" ] || trained; }
shard_ended() { ! kill -0 "$(cat "$DIR/shard-0.pid")" 2>/dev/null; }
wait_for 60 reached 5
# Not by the page cache: where that collides with the shard's direct I/O, the kernel fails a later sync with EIO.
head -c 2M /dev/urandom | dd of="$DIR/shard-0-nvme/kaon-parameters" bs=64K iflag=fullblock oflag=direct conv=notrunc status=none
wait_for 60 shard_ended || give_up
grep -q "nvme_dirs: .*unit .*: the file has other bytes than were written" "$DIR/shard-0.log" || fail "shard 0 ended otherwise: $(tail -n 3 "$DIR/shard-0.log")"
cluster_revive_shard "$DIR" 0 || give_up
wait_for 120 trained
wait "$trainer_pid" || { cat "$TEST_TMPDIR/service"; give_up; }
expect_digest "a damaged file" long
stop

# Groups move to the file and back while the job trains.
: >"$TEST_TMPDIR/log"
start 2 2
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer_pid=$!
move() { "$KAONCTL" --dir "$DIR" group set "$@" >"$TEST_TMPDIR/moved" 2>&1 || fail "group set $*: $(cat "$TEST_TMPDIR/moved")"; }
wait_for 60 reached 4
move muon tier=nvme
wait_for 60 reached 8
[[ $(homes) == *"'cpu': "*"'nvme': "* ]] || fail "not in both tiers after a move: $(homes)"
cluster_kill "$DIR" shard-1
cluster_revive_shard "$DIR" 1 || give_up
move adamw tier=nvme
wait_for 60 reached 14
move muon tier=host
wait_for 120 trained
wait "$trainer_pid" || { cat "$TEST_TMPDIR/service"; give_up; }
expect_digest "groups that move"
stop

# The first run tells what the job needs in memory; the second has a little less.
unset_nvme
start 1 2
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" || give_up
described "$TEST_TMPDIR/status"
needed=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shards"][0]["used_bytes"])' "$TEST_TMPDIR/status")
stop
use_nvme
export KAON_HOST_MEMORY_BYTES=$((needed - 4096 + KAON_NVME_STAGING_BYTES))
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints
mkdir -p "$KAON_CHECKPOINT_DIR"
start 1 2
: >"$TEST_TMPDIR/log"
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --log-jsonl "$TEST_TMPDIR/log" &
trainer_pid=$!
for at in 5 12 18; do
  wait_for 60 reached "$at"
  cluster_kill "$DIR" shard-0
  cluster_revive_shard "$DIR" 0 || give_up
done
wait_for 120 trained
wait "$trainer_pid" || { cat "$TEST_TMPDIR/service"; give_up; }
expect_digest "some in memory, three kills"
[[ $(homes) == *"'cpu': "*"'nvme': "* ]] || fail "not in both tiers: $(homes)"
[[ $("$KAONCTL" --dir "$DIR" tiers) == *nvme* ]] || fail "kaonctl tiers: $("$KAONCTL" --dir "$DIR" tiers)"
"$KAONCTL" --dir "$DIR" checkpoint create some >"$TEST_TMPDIR/created" || fail "checkpoint: $(cat "$TEST_TMPDIR/created")"
digests() { "$KAONCTL" --dir "$DIR" -o json digest | python3 -c 'import json, sys; print(json.load(sys.stdin)["weights_digest"])'; }
before=$(digests)
stop

# The checkpoint is restored by two shards in memory, and by two with memory for a part of it.
unset_nvme
reserved=$((32 << 20))
for place in memory both; do
  if [ "$place" = both ]; then
    use_nvme
    # An update alone may take a third of it, by processor.
    export KAON_HOST_MEMORY_BYTES=$((reserved + KAON_NVME_STAGING_BYTES + (needed - reserved) / 2))
  fi
  start 2 2
  "$KAONCTL" --dir "$DIR" checkpoint restore --yes some >"$TEST_TMPDIR/restored" 2>&1 || fail "restore: $(cat "$TEST_TMPDIR/restored")"
  [ "$(digests)" = "$before" ] || fail "the digest of a restore in $place is $(digests), it was $before"
  [ "$place" = memory ] || [[ $(homes) == *nvme* ]] || fail "restored in: $(homes)"
  echo "restored in $place: $before, $(homes)"
  stop
done

# A shard without a disk refuses a group that asks for one.
unset_nvme
start 1 2
if train "$TEST_TMPDIR/refused" "${OPTIONS[@]}" --tier nvme; then fail "trained without a disk"; fi
grep -q "group [a-z]* has tier nvme, and this shard has no disk for parameters; start it with --nvme-dirs and --nvme-bytes" \
  "$TEST_TMPDIR/refused" || fail "refused with: $(tail -n 3 "$TEST_TMPDIR/refused")"
stop
finish
