#!/bin/bash
# Trains with docs/examples/minimal_trainer.cc, which Bazel compiles as C++17: two ranks, of which one ends early, is
# started again, and goes on from its step.
source tests/integration/real_cluster.sh

# trainer RANK LAST_STEP
trainer() {
  KAON_ENDPOINTS=127.0.0.1:$(cat "$DIR/coordinator.port") KAON_TLS_DIR=$DIR/tls KAON_RANK=$1 \
    docs/examples/minimal_trainer 2 "$2" >"$DIR/rank-$1-to-$2" 2>&1
}

[ "$(wc -l <docs/examples/minimal_trainer.cc)" -lt 60 ] || fail "the example has $(wc -l <docs/examples/minimal_trainer.cc) lines"
start 2 2
trainer 0 600 &
rank_0=$!
# Rank 0 waits for rank 1 after step 20.
trainer 1 20 || fail "rank 1: $(cat "$DIR/rank-1-to-20")"
trainer 1 600 || fail "rank 1 again: $(cat "$DIR/rank-1-to-600")"
wait "$rank_0" || fail "rank 0: $(cat "$DIR/rank-0-to-600")"
tail -n 3 "$DIR"/rank-*
grep -q "starts after step 20," "$DIR/rank-1-to-600" || fail "rank 1 did not go on from step 20"
[ "$(tail -n 1 "$DIR/rank-0-to-600")" = "$(tail -n 1 "$DIR/rank-1-to-600")" ] || fail "the ranks end with different weights"
python3 - "$DIR/rank-0-to-600" <<'PYTHON' || fail "rank 0 learned nothing"
import re, sys
first, *_, last = re.findall(r"loss ([0-9.e-]+)", open(sys.argv[1]).read())
assert float(last) < 0.5 * float(first), (first, last)
PYTHON
stop
finish
