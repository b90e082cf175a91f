#!/bin/bash
# Every benchmark still runs, at its smallest size, and writes what tests/benchmark/check.py reads: its figures mean nothing.
set -euo pipefail

programs=tests/benchmark
certificates=$TEST_TMPDIR/tls
deploy/certificates.sh "$certificates" --workers 2 --job push-pull >"$TEST_TMPDIR/certificates.log" 2>&1 ||
  { cat "$TEST_TMPDIR/certificates.log"; exit 1; }

# run NAME OPTION...: NAME's objects go to $TEST_TMPDIR/NAME.json
run() {
  local name=$1
  shift
  "$programs/$name" --json "$TEST_TMPDIR/$name.json" "$@" >"$TEST_TMPDIR/$name.out" 2>&1 ||
    { echo "FAILED: $name $*"; cat "$TEST_TMPDIR/$name.out"; exit 1; }
}
run optimizer_step --million-elements 1 --threads 2
run muon_step --shapes 64x64,64x256 --small-matrices 2 --threads 2
run push_pull --mebibytes 4 --workers 1,2 --tensors 10,100 --transports grpc,shm,tls --certificates "$certificates"
run step_time --million-elements 1 --workers 1
run journal_bandwidth --directory "$TEST_TMPDIR" --mebibytes 4
run tier_step --directory "$TEST_TMPDIR" --million-elements 1 --side 64 --staging-mib 1
RUNS=2 HIDDEN=64 BLOCKS=1 STEPS=2 PRESETS=default run shard_memory.sh

python3 - "$TEST_TMPDIR" <<'PY'
import glob, json, math, sys

KEYS = {"name", "value", "min", "max", "unit", "limit", "limit_min", "limit_max", "limit_name", "ratio", "settings"}
EXPECTED = {
    "adamw_step", "sgd_step", "lion_step", "finish_pass", "muon_step", "muon_library", "muon_error", "push", "pull", "push_peer", "pull_peer",
    "push_tensors", "pull_tensors", "push_shm", "pull_shm", "push_tensors_shm", "pull_tensors_shm", "push_tls", "pull_tls", "overhead", "overhead_and_disk", "step_e2e", "step_sum", "step_ahead", "step_watched", "journal", "shard_memory",
}
rows = [json.loads(line) for path in glob.glob(sys.argv[1] + "/*.json") for line in open(path, encoding="utf-8")]
missing = EXPECTED - {row["name"] for row in rows}
wrong = [row for row in rows if set(row) != KEYS or not row["min"] <= row["value"] <= row["max"]
         or not row["limit_min"] <= row["limit"] <= row["limit_max"] or not 0 < row["ratio"] < math.inf]
for row in [f"no row of {name}" for name in sorted(missing)] + wrong:
    print("FAILED:", row)
sys.exit(1 if missing or wrong else 0)
PY
