#!/bin/bash
# docs/examples/train_gpt.py has the losses of torch's optimizers through Kaon, alone and with two ranks. Prints steps/s
# and the trainer's peak memory of each.
source tests/integration/real_cluster.sh

export PYTHONPATH=$PWD/client/python${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1
export KAON_LIBRARY=$PWD/deploy/library/libkaon.so KAON_DIR=$DIR

# gpt OUT OPTIONS...
gpt() {
  local out=$TEST_TMPDIR/$1
  shift
  /usr/bin/python3 docs/examples/train_gpt.py "$@" >"$out" 2>"$out.log" || { cat "$out.log"; fail "train_gpt.py $*"; }
}
# two_ranks OUT OPTIONS...: rank 0 prints the mean loss.
two_ranks() {
  # A failure in a shell of its own is not counted here.
  { RANK=1 WORLD_SIZE=2 gpt "$1-1" --optimizer kaon "${@:2}"; [ "$failures" -eq 0 ]; } &
  local second=$!
  RANK=0 WORLD_SIZE=2 gpt "$1" --optimizer kaon "${@:2}"
  wait "$second" || fail "rank 1 of $1"
}
# same TOLERANCE OUT OTHER [REST]: the printed losses differ by at most that, relatively. The last one is below REST of the
# first one.
same() {
  paste "$TEST_TMPDIR/$2" "$TEST_TMPDIR/$3"
  python3 - "$1" "${4:-0.7}" "$TEST_TMPDIR/$2" "$TEST_TMPDIR/$3" <<'PY' || fail "the losses of $2 and $3 are wrong"
import sys
tolerance, rest = map(float, sys.argv[1:3])
here, there = [[line.split() for line in open(path)] for path in sys.argv[3:]]
assert len(here) == len(there) >= 3, (here, there)
assert all(a[1] == b[1] and abs(float(a[3]) / float(b[3]) - 1) <= tolerance for a, b in zip(here, there))
assert float(here[-1][3]) < rest * float(here[0][3]), f"it has not learnt: {here}"
PY
}

gpt torch --optimizer torch --adamw --steps 20
start 2 any
gpt kaon --optimizer kaon --adamw --steps 20
same 1e-5 torch kaon
stop

start 2 any
two_ranks ranks --adamw --steps 20
same 1e-5 torch ranks
stop

# Newton-Schulz is in bf16 on both sides.
gpt torch_muon --optimizer torch --steps 30
start 2 any
gpt kaon_muon --optimizer kaon --steps 30
same 1e-2 torch_muon kaon_muon 0.8
stop
start 2 any
two_ranks ranks_muon --steps 30
same 1e-2 torch_muon ranks_muon 0.8
stop
for log in "$TEST_TMPDIR"/*.log; do echo "$(basename "$log" .log): $(grep -h steps/s "$log")"; done
finish
