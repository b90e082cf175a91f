#!/bin/bash
# The most memory that a shard has had resident, from its start to the last of some steps, beside what it may take: its tensors
# (weights, state, sums of gradients), its staging, and a tenth more. bazel run --config=opt //tests/benchmark:shard_memory
# The median of RUNS runs of each preset.
#   RUNS=5 PRESETS="adamw default" HIDDEN=2048 BLOCKS=4 STEPS=6 WORKERS=2 TEST_TMPDIR=/a/directory/on/the/disk
# Over the network; with TRANSPORT=shm KAON_SHM_SESSIONS=4 its share of the rings, 10 MiB for each, may be resident, too.
# With --json FILE also one JSON object per line, as every benchmark writes.
TEST_TMPDIR=${TEST_TMPDIR:-$(mktemp -d)}
source tests/integration/real_cluster.sh

json=/dev/null
[ "${1:-}" != --json ] || json=${2:?--json needs a file}
STEPS=${STEPS:-6}
WORKERS=${WORKERS:-2}
export KAON_SHM_SESSIONS=${KAON_SHM_SESSIONS:-0}
SMALL=(--hidden "${HIDDEN:-2048}" --blocks "${BLOCKS:-4}" --embedding 32 --batch-size 8 --report-every 1000)

: >"$json"
for preset in ${PRESETS:-adamw default}; do
  : >"$TEST_TMPDIR/peaks"
  for ((run = 0; run < ${RUNS:-5}; ++run)); do
    start 1 "$WORKERS"
    train "$TEST_TMPDIR/out" --workers "$WORKERS" --steps "$STEPS" --preset "$preset" || { tail -n 5 "$TEST_TMPDIR/out"; exit 1; }
    "$KAONCTL" --dir "$DIR" -o json status >"$TEST_TMPDIR/status"
    "$KAONCTL" --dir "$DIR" -o json parameters >"$TEST_TMPDIR/parameters"
    grep VmHWM "/proc/$(cat "$DIR/shard-0.pid")/status" >>"$TEST_TMPDIR/peaks"
    stop
  done
  python3 - "$TEST_TMPDIR/status" "$TEST_TMPDIR/peaks" "$preset, ${SMALL[1]} hidden, ${SMALL[3]} blocks, $WORKERS workers" "$json" "$KAON_SHM_SESSIONS" "$TEST_TMPDIR/parameters" <<'PY'
import json, statistics, sys
shard = json.load(open(sys.argv[1], encoding="utf-8"))["shards"][0]
peaks = [int(line.split()[1]) / 1024 for line in open(sys.argv[2], encoding="utf-8")]
peak = statistics.median(peaks)
rings = 10 * int(sys.argv[5])
# What host_memory_bytes has beside them is the history, about empty here, the sessions and what updates take.
tensors = sum(row["state_bytes"] for row in json.load(open(sys.argv[6], encoding="utf-8"))["parameters"]) / 2**20
staging = shard["staging_bytes"] / 2**20
limit = 1.1 * (tensors + staging) + rings
print(f"shard_memory {sys.argv[3]:44s} {peak:9.2f} MiB resident at most ({min(peaks):.2f} .. {max(peaks):.2f}), tensors {tensors:.2f} + staging {staging:.2f} + 10 % = "
      f"{limit:.2f}, ratio {limit / peak:.2f}")
row = {"name": "shard_memory", "value": peak, "min": min(peaks), "max": max(peaks), "unit": "MiB", "limit": limit, "limit_min": limit, "limit_max": limit,
       "limit_name": "tensors, staging and a tenth", "ratio": round(limit / peak, 4), "settings": sys.argv[3]}
with open(sys.argv[4], "a", encoding="utf-8") as file:
    print(json.dumps(row), file=file)
PY
done
finish
