#!/bin/bash
# docs/examples/jax_training.py trains where jax is installed.
set -euo pipefail

# shellcheck source=tests/skipped.sh
source tests/skipped.sh
/usr/bin/python3 -c 'import jax' 2>/dev/null || skipped "jax is not installed for /usr/bin/python3: pip install jax"
export PYTHONPATH=$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}
export KAON_LIBRARY=$PWD/deploy/library/libkaon.so KAON_BINARIES=$PWD
unset KAON_ENDPOINTS KAON_DIR KAON_TLS_DIR
/usr/bin/python3 docs/examples/jax_training.py --steps 100 | tee "$TEST_TMPDIR/losses"
# step N loss X
awk '{ loss[NR] = $4 } END { exit !(NR == 10 && loss[10] < 0.5 * loss[1]) }' "$TEST_TMPDIR/losses" ||
  { echo "FAIL: the loss did not fall to half of its first value in 10 lines" >&2; exit 1; }
