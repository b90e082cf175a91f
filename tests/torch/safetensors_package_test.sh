#!/bin/bash
# Exchanges files of tensors with the reference package of the format, `safetensors`. The package opens the
# exported file of a trained job and every file of its checkpoint, and finds the tensors that their bytes hold.
# Kaon imports the files that the package writes. Debian 12 has no such package. pip's is used if Debian's python3
# finds it (tests/nightly.sh passes PYTHONPATH on). Otherwise nothing runs, and the reason is printed.
source tests/integration/real_cluster.sh

PYTHON=/usr/bin/python3
CHECK=tests/torch/check_safetensors_package.py

if ! missing=$("$PYTHON" -c 'import safetensors.torch' 2>&1); then
  reason="$PYTHON cannot import safetensors.torch: $(tail -n 1 <<<"$missing")"
  echo "safetensors_package_test: not run: $reason"
  # tests/count_results.py reads this file.
  "$PYTHON" - "$reason" >"$XML_OUTPUT_FILE" <<'PY'
import sys
from xml.sax.saxutils import quoteattr
print(f'<testsuites><testsuite name="safetensors_package_test"><testcase name="all"><skipped message={quoteattr(sys.argv[1])}/>'
      "</testcase></testsuite></testsuites>")
PY
  exit 0
fi

TRAINED=$TEST_TMPDIR/trained
IMPORTED=$TEST_TMPDIR/imported
mkdir -m 700 "$TRAINED" "$IMPORTED"
export KAON_CHECKPOINT_DIR=$TRAINED
start 2 1
train "$TEST_TMPDIR/service" --workers 1 --steps 5 || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; exit 1; }
"$KAONCTL" --dir "$DIR" --timeout 60 checkpoint create trained >/dev/null || give_up
stop
for dtype in float32 bfloat16; do
  "$KAONCTL" checkpoint export trained --out "$TEST_TMPDIR/$dtype.safetensors" --dtype $dtype || fail "export as $dtype"
done
"$PYTHON" "$CHECK" read "$TEST_TMPDIR/float32.safetensors" "$TEST_TMPDIR/bfloat16.safetensors" "$TRAINED"/*.safetensors ||
  fail "what the package reads"
"$PYTHON" "$CHECK" rounded "$TEST_TMPDIR/float32.safetensors" "$TEST_TMPDIR/bfloat16.safetensors" || fail "weights rounded to bf16"

"$PYTHON" "$CHECK" write "$TEST_TMPDIR/float32.safetensors" "$TEST_TMPDIR/theirs.safetensors" "$TEST_TMPDIR/job.json"
export KAON_CHECKPOINT_DIR=$IMPORTED
"$KAONCTL" checkpoint import "$TEST_TMPDIR/theirs.safetensors" --job "$TEST_TMPDIR/job.json" --id begin || fail "import"
"$KAONCTL" checkpoint export begin --out "$TEST_TMPDIR/back.safetensors" || fail "export of what was imported"
"$PYTHON" "$CHECK" same "$TEST_TMPDIR/theirs.safetensors" "$TEST_TMPDIR/back.safetensors" || fail "what was imported"
finish
