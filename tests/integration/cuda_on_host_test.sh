#!/bin/bash
# Trains on two shards of the CUDA backend, whose device is the host. Weights, optimizer state and sums are in device
# memory. AdamW ends in the bits of a run without servers. Muon and AdamW end in one digest: twice, and in a run in which
# a shard dies while it holds the sums of an open step.
source tests/integration/real_cluster.sh

export LD_LIBRARY_PATH=$PWD/kernels/cuda
export KAON_DEVICE=cuda_on_host:0
# Each thread of a kernel is a fiber, so the model is tiny.
SMALL=(--hidden 24 --embedding 4 --batch-size 32 --report-every 1)
OPTIONS=(--workers 2 --split 3,5 --steps 6)

# on_device: every shard computes on the device.
on_device() {
  "$KAONCTL" --dir "$DIR" -o json backend | python3 -c '
import json, sys
shards = json.load(sys.stdin)["shards"]
sys.exit(len(shards) != 2 or any(shard["backend"] != "cuda_on_host" for shard in shards))'
}

# run OUT OPTIONS...: trains on a new cluster.
run() {
  local out=$1
  shift
  start 2 2
  train "$out" "${OPTIONS[@]}" --log-jsonl "$out.log" "$@" || { cat "$out"; cluster_show_logs "$DIR"; exit 1; }
  wait_for 20 on_device || fail "a shard computes on the CPU"
  stop
}

run "$TEST_TMPDIR/adamw" --preset adamw
train_local "$TEST_TMPDIR/local" "${OPTIONS[@]}" --preset adamw
here=$(field "$TEST_TMPDIR/local" weights_digest)
there=$(field "$TEST_TMPDIR/adamw" weights_digest)
echo "AdamW: device $there, CPU $here"
[ "$there" = "$here" ] || fail "AdamW: digests differ"

run "$TEST_TMPDIR/muon"
digest=$(field "$TEST_TMPDIR/muon" weights_digest)
python3 -c '
import json, sys
losses = [row["loss"] for row in map(json.loads, open(sys.argv[1])) if row["type"] == "step"]
print("losses", losses)
sys.exit(len(losses) != 6 or losses[-1] > losses[0] - 0.1)' "$TEST_TMPDIR/muon.log" || fail "the loss does not fall"

# Rank 1 ends after step 3, so step 4 stays open with the gradients of rank 0.
start 2 2
launch 0
launch 1 --stop-after 3
join_trainer 60 1
wait_for 60 phase_has "rank 1" || give_up
cluster_kill "$DIR" shard-1
cluster_revive_shard "$DIR" 1 || give_up
launch 1
join_trainer 60 0
join_trainer 60 1
"$KAONCTL" --dir "$DIR" -o json status | python3 -c '
import json, sys
shard = json.load(sys.stdin)["shards"][1]
print("shard 1 read", shard["recovered_entries"], "entries back")
sys.exit(shard["recovered_entries"] == 0)' || fail "shard 1 read nothing back"
stop
there=$(field "$TEST_TMPDIR/rank-0" weights_digest)
echo "Muon and AdamW: $digest, with a shard killed $there"
[ "$there" = "$digest" ] || fail "Muon and AdamW: digests differ"
finish
