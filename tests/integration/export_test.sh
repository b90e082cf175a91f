#!/bin/bash
# Exports and imports weights. A program that knows only the format's description reads an exported checkpoint of a
# trained job. Each tensor equals the one that the servers report. The imported checkpoint starts another job on
# other shards with the same weights.
source tests/integration/real_cluster.sh

OPTIONS=(--workers 1 --steps 12)
TRAINED=$TEST_TMPDIR/trained
STARTED=$TEST_TMPDIR/started
mkdir -m 700 "$TRAINED" "$STARTED"

ctl() { "$KAONCTL" --dir "$DIR" --timeout 60 -o json "$@"; }

export KAON_CHECKPOINT_DIR=$TRAINED
start 2 1
train "$TEST_TMPDIR/service" "${OPTIONS[@]}" || { cat "$TEST_TMPDIR/service"; cluster_show_logs "$DIR"; exit 1; }
ctl checkpoint create trained >/dev/null || give_up
ctl digest >"$TEST_TMPDIR/digest"
ctl parameters >"$TEST_TMPDIR/parameters"
for name in $(python3 -c 'import json, sys; print(*[row["name"] for row in json.load(open(sys.argv[1]))["parameters"]])' "$TEST_TMPDIR/parameters"); do
  ctl parameter stats "$name" || fail "parameter stats $name"
done >"$TEST_TMPDIR/stats"
stop
for dtype in float32 bfloat16; do
  "$KAONCTL" checkpoint export trained --out "$TEST_TMPDIR/$dtype.safetensors" --dtype $dtype || fail "export as $dtype"
done
python3 tests/integration/check_export.py "$TEST_TMPDIR" || fail "the exported weights"
[ "$(field "$TEST_TMPDIR/service" weights_digest)" = "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["weights_digest"])' "$TEST_TMPDIR/digest")" ] ||
  fail "the trainer's weights are not the servers'"

# check_export.py has written the definition of another job; its shards hold nothing.
export KAON_CHECKPOINT_DIR=$STARTED
"$KAONCTL" checkpoint import "$TEST_TMPDIR/float32.safetensors" --job "$TEST_TMPDIR/job.json" --id begin || fail "import"
start 3 1
ctl checkpoint restore --yes begin >"$TEST_TMPDIR/restored" || fail "restore: $(cat "$TEST_TMPDIR/restored")"
ctl digest >"$TEST_TMPDIR/begun"
python3 - "$TEST_TMPDIR/digest" "$TEST_TMPDIR/begun" <<'PY' || fail "the weights of the new job"
import json, sys
trained, begun = (json.load(open(path)) for path in sys.argv[1:])
assert (begun["job"], begun["step"], len(begun["shards"])) == ("begun", 0, 3), begun
assert begun["weights_digest"] == trained["weights_digest"], (trained, begun)
print("trained and imported:", begun["weights_digest"])
PY
stop
finish
