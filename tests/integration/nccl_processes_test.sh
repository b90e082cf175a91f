#!/bin/bash
# Gradients and weights over NCCL between real processes: two trainers and a shard. The production loader finds the
# device on the host and a library over sockets in place of a GPU and of NCCL. Every run ends in the digest of a run
# without servers. In some, a trainer or the shard dies with -9 in the middle of a push or of a pull. In others, each
# process spoils a transfer.
source tests/integration/real_cluster.sh

libraries=$TEST_TMPDIR/libraries
mkdir -p "$libraries"
ln -sf "$PWD/kernels/cuda/libkaon_cuda_on_host.so" "$libraries/libkaon_cuda.so"
ln -sf "$PWD/tests/testing/libsocket_nccl.so" "$libraries/libnccl.so.2"
export LD_LIBRARY_PATH=$libraries
export KAON_NCCL=lo
TRANSPORT=grpc
# The gradients of a trainer need several transfers a step.
SMALL=(--hidden 320 --embedding 16 --batch-size 32 --report-every 1)
STEPS=8
MODEL=(--workers 2 --split 3,5 --steps "$STEPS" --preset adamw)
OPTIONS=("${MODEL[@]}" --nccl lo)

# carried PUSHES PULLS: the shard's sessions that have ended carried so many transfers, at least.
carried() {
  python3 - "$DIR/shard-0.log" "$@" <<'PY'
import re, sys
text = open(sys.argv[1]).read()
pulls = set(re.findall(r"NCCL session (\d+) for .*, for pulls", text))
counts = [0, 0]
for session, transfers in re.findall(r"NCCL session (\d+) of rank \d+ ended after (\d+) transfers", text):
    counts[session in pulls] += int(transfers)
print(f"{counts[0]} transfers of gradients, {counts[1]} of weights")
sys.exit(any(count < int(least) for count, least in zip(counts, sys.argv[2:])))
PY
}

dead() { ! cluster_alive "$DIR" shard-0; }

# finish_run NAME PUSHES PULLS
finish_run() {
  local there rank
  for rank in 0 1; do join_trainer 100 "$rank"; done
  stop
  carried "$2" "$3" || fail "$1: not over NCCL"
  there=$(field "$TEST_TMPDIR/rank-0" weights_digest)
  echo "$1: service $there, local $here"
  [ "$there" = "$here" ] || fail "$1: digests differ"
}

train_local "$TEST_TMPDIR/local" "${MODEL[@]}"
here=$(field "$TEST_TMPDIR/local" weights_digest)

start 1 2
for rank in 0 1; do launch "$rank"; done
finish_run "undisturbed" $((STEPS * 2 * 2)) $((STEPS * 2))

# The shard folds where gradients arrive, and sends weights from there.
KAON_DEVICE=cuda:0 start 1 2
for rank in 0 1; do launch "$rank"; done
finish_run "shard on the device" $((STEPS * 2 * 2)) $((STEPS * 2))
grep -q "neither encrypts nor authenticates, in place" "$DIR/shard-0.log" || fail "the shard is not on the device"

for point in worker_chunk_sent:8 worker_pull_chunk:8; do
  start 1 2
  launch 0
  KAON_FAILPOINT=$point launch 1
  wait_for 60 ended 1 || give_up
  grep -q "^KAON_FAILPOINT ${point%:*}:" "$TEST_TMPDIR/rank-1" || fail "rank 1 did not die at $point"
  # The failpoint of a pull has one meaning over any transport.
  [ "${point%:*}" != worker_pull_chunk ] || grep -q "as rank 1, for pulls" "$DIR/shard-0.log" ||
    fail "rank 1 pulled without NCCL"
  launch 1
  finish_run "trainer killed at $point" $((STEPS * 2)) $STEPS
done

# What the sessions before its death carried is not in its log.
for point in shard_chunk_received:20 shard_pull_chunk:12; do
  KAON_FAILPOINT=$point start 1 2
  for rank in 0 1; do launch "$rank"; done
  wait_for 60 dead || give_up
  [ "$(grep -c "for .*, for pulls" "$DIR/shard-0.log")" -ge 2 ] || [ "${point%:*}" != shard_pull_chunk ] ||
    fail "not both trainers had a session for pulls before $point"
  grep -q "NCCL session 2 for" "$DIR/shard-0.log" || fail "no session of both trainers before $point"
  # The revived shard numbers its sessions from 1 again.
  mv "$DIR/shard-0.log" "$DIR/shard-0-before.log"
  cluster_revive_shard "$DIR" 0 || give_up
  finish_run "shard killed at $point" 0 0
done

for transfer in 5 12; do
  export KAON_SOCKET_NCCL_FAULTS=$transfer
  start 1 2
  for rank in 0 1; do launch "$rank"; done
  finish_run "transfer $transfer of each process spoiled" 1 0
  grep -qE "arrived with digest|was closed by the other rank" "$DIR/shard-0.log" || fail "nothing was spoiled"
done
finish
