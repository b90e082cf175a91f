#!/bin/bash
# A job that would take ten times the memory of its shard trains to the bits of a run in memory, over a kill in the
# middle. Weights, moments and sums of gradients live in a file. Resident memory, read every 100 ms, never exceeds
# host_memory_bytes, staging_bytes (64 MiB by default) and a tenth of both.
source tests/integration/real_cluster.sh
export KAON_SHM_SESSIONS=0
memory=$((64 << 20))
SMALL=(--hidden 768 --blocks 64 --embedding 32 --batch-size 8 --report-every 1000)
OPTIONS=(--workers 2 --steps 3 --preset adamw)

# watch_memory: writes the resident bytes of shard 0 every 100 ms until the file `watching` is gone.
watch_memory() {
  while [ -e "$TEST_TMPDIR/watching" ]; do
    awk '$1 == "VmRSS:" {print 1024 * $2}' "/proc/$(cat "$DIR/shard-0.pid")/status" 2>/dev/null || true
    sleep 0.1
  done >"$TEST_TMPDIR/resident"
}

train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}" || { cat "$TEST_TMPDIR/local"; give_up; }
export KAON_HOST_MEMORY_BYTES=$memory KAON_NVME_STAGING_BYTES=$((28 << 20)) KAON_NVME_BYTES=$((2 << 30))
start 1 2
touch "$TEST_TMPDIR/watching"
watch_memory &
watcher_pid=$!
: >"$TEST_TMPDIR/log"
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" --tier nvme --log-jsonl "$TEST_TMPDIR/log" &
trainer_pid=$!
trained() { ! kill -0 "$trainer_pid" 2>/dev/null; }
reached() { [ "$(grep -c '"type": *"step"' "$TEST_TMPDIR/log")" -ge "$1" ] || trained; }
wait_for 240 reached 2
trained && fail "trained before the kill"
cluster_kill "$DIR" shard-0
cluster_revive_shard "$DIR" 0 || give_up
wait_for 240 trained
wait "$trainer_pid" || { cat "$TEST_TMPDIR/service"; give_up; }
rm "$TEST_TMPDIR/watching"
wait "$watcher_pid"

local_digest=$(field "$TEST_TMPDIR/local" weights_digest)
service_digest=$(field "$TEST_TMPDIR/service" weights_digest)
[ "$local_digest" = "$service_digest" ] || fail "digests differ: service $service_digest, local $local_digest"
"$KAONCTL" --dir "$DIR" tiers
"$KAONCTL" --dir "$DIR" -o json tiers >"$TEST_TMPDIR/tiers"
python3 - "$TEST_TMPDIR/tiers" "$TEST_TMPDIR/resident" "$((memory + (64 << 20)))" <<'PYTHON' || fail "see above"
import json, sys
tiers = {tier["tier"]: tier for tier in json.load(open(sys.argv[1]))["tiers"]}
resident = [int(line) for line in open(sys.argv[2])]
allowed = int(sys.argv[3]) * 11 // 10
# The file has two versions of 12 bytes, and a sum of 4, where memory would have 20.
needed = tiers["nvme"]["used_bytes"] * 20 // 28
print(f"{needed >> 20} MiB needed in memory, {tiers['cpu']['capacity_bytes'] >> 20} given; "
      f"{max(resident) >> 20} resident at most in {len(resident)} readings, {allowed >> 20} allowed")
sys.exit(needed < 10 * tiers["cpu"]["capacity_bytes"] or len(resident) < 10 or max(resident) > allowed)
PYTHON
stop
finish
