#!/bin/bash
# P17: a shard with exactly the host memory that its job needs, by its own arithmetic, trains it. Its resident
# memory never exceeds host_memory_bytes, staging_bytes and a tenth of both. A shard with 64 bytes less refuses the
# job and reports why. Muon and AdamW, over the network. Malicious clients add 16 MiB at most
# (byzantine_client_test), so this test leaves so much free.
source tests/integration/real_cluster.sh
export KAON_SHM_SESSIONS=0
SMALL=(--hidden 1024 --blocks 4 --embedding 32 --batch-size 8 --report-every 1000)

# shard_number NAME: prints a number of shard 0's description.
shard_number() {
  described "$TEST_TMPDIR/status" && python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["shards"][0][sys.argv[2]])' "$TEST_TMPDIR/status" "$1"
}

for preset in default adamw; do
  unset KAON_HOST_MEMORY_BYTES
  start 1 2
  train "$TEST_TMPDIR/out" --workers 2 --steps 1 --preset "$preset" || fail "$preset: $(tail -n 5 "$TEST_TMPDIR/out")"
  needed=$(shard_number used_bytes)
  staging=$(shard_number staging_bytes)
  stop

  export KAON_HOST_MEMORY_BYTES=$needed
  start 1 2
  train "$TEST_TMPDIR/out" --workers 2 --steps 4 --preset "$preset" || fail "$preset: $(tail -n 5 "$TEST_TMPDIR/out")"
  peak=$(awk '$1 == "VmHWM:" {print 1024 * $2}' "/proc/$(cat "$DIR/shard-0.pid")/status")
  stop
  allowed=$(((needed + staging) * 11 / 10 - (16 << 20)))
  echo "$preset: $((peak >> 20)) MiB resident at most, $((allowed >> 20)) allowed: host_memory_bytes $((needed >> 20)) + staging_bytes" \
    "$((staging >> 20)), a tenth more, 16 less"
  [ "$peak" -gt 0 ] && [ "$peak" -le "$allowed" ] || fail "$preset: $peak bytes resident, $allowed allowed"

  export KAON_HOST_MEMORY_BYTES=$((needed - 64))
  start 1 2
  if train "$TEST_TMPDIR/out" --workers 2 --steps 1 --preset "$preset"; then fail "$preset: trained with 64 bytes less"; fi
  grep -Eq "RESOURCE_EXHAUSTED.* bytes needed, [0-9]+ free = $KAON_HOST_MEMORY_BYTES capacity - [0-9]+ in use" "$TEST_TMPDIR/out" ||
    fail "$preset: the arithmetic is missing: $(tail -n 3 "$TEST_TMPDIR/out")"
  stop
done
finish
