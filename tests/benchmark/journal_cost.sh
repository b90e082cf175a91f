#!/bin/bash
# What durability costs a job: the time of a step in each mode, taken by turns on the same machine, and the bytes that each shard's
# journal takes in that time beside what the disk alone takes of as many by write and fdatasync, in the same run.
# bazel run --config=opt //tests/benchmark:journal_cost
#   MODES="none interval(50) journal" ROUNDS=3 STEPS=100 SHARDS=1 HIDDEN=512 BATCH=16 PRESET=default TEST_TMPDIR=/a/directory/on/the/disk
TEST_TMPDIR=${TEST_TMPDIR:-$(mktemp -d)}
source tests/integration/real_cluster.sh

MODES=${MODES:-none interval(50) journal}
ROUNDS=${ROUNDS:-3}
STEPS=${STEPS:-100}
SHARDS=${SHARDS:-1}
SMALL=(--hidden "${HIDDEN:-512}" --embedding 32 --batch-size "${BATCH:-16}" --preset "${PRESET:-default}" --report-every 1000)
# No snapshot comes between, but those that a mode is made of.
export KAON_SNAPSHOT_JOURNAL_BYTES=$((1 << 50))

# disk_alone BYTES: seconds that one file takes for so many bytes more and a sync; median of 9.
disk_alone() {
  python3 -c '
import os, statistics, sys, time
size = int(sys.argv[2])
block = os.urandom(min(size, 1 << 20))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
seconds = []
for _ in range(9):
    start = time.monotonic()
    left = size
    while left > 0:
        left -= os.write(fd, block[:left])
    os.fdatasync(fd)
    seconds.append(time.monotonic() - start)
os.close(fd)
os.unlink(sys.argv[1])
print(statistics.median(seconds))' "$TEST_TMPDIR/disk_alone" "$1"
}

# Of each run: mode, seconds per step, journal bytes per step and shard, seconds of the disk alone for them.
: >"$TEST_TMPDIR/runs"
for ((round = 1; round <= ROUNDS; ++round)); do
  for mode in $MODES; do
    export KAON_DURABILITY=$mode
    start "$SHARDS" 1
    train "$TEST_TMPDIR/out" --workers 1 --steps "$STEPS" || { tail -n 5 "$TEST_TMPDIR/out"; exit 1; }
    "$KAONCTL" --dir "$DIR" -o json status >"$TEST_TMPDIR/status"
    stop
    bytes=$(python3 -c 'import json, sys; print(sum(s["journal_bytes"] for s in json.load(open(sys.argv[1]))["shards"]))' "$TEST_TMPDIR/status")
    # Registration and initial weights are one more.
    per_step=$((bytes / (STEPS + 1) / SHARDS))
    alone=0
    [ "$per_step" -lt 4096 ] || alone=$(disk_alone "$per_step")
    echo "$mode $(field "$TEST_TMPDIR/out" seconds) $STEPS $per_step $alone" >>"$TEST_TMPDIR/runs"
  done
done
python3 - "$TEST_TMPDIR/runs" <<'PY'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1], encoding="utf-8"):
    mode, seconds, steps, per_step, alone = line.split()
    runs[mode].append((float(seconds) / int(steps), int(per_step), float(alone)))
base = None
for mode, of_mode in runs.items():
    step = statistics.median(run[0] for run in of_mode)
    base = base or step
    line = f"{mode:14s} {1e3 * step:8.1f} ms per step, {1e3 * (step - base):+.1f} ms"
    per_step = of_mode[0][1]
    alone = statistics.median(run[2] for run in of_mode)
    if alone > 0:
        line += (f"; {per_step / 1e6:.2f} MB per step and shard on disk: {per_step / step / 1e6:.0f} MB/s, the disk alone "
                 f"{per_step / alone / 1e6:.0f} MB/s ({1e3 * alone:.1f} ms)")
    print(line)
PY
finish
