#!/bin/bash
# Proves that the optimizer ran: `kaonctl parameters -o json` shows that each hidden matrix had exactly as many
# Newton-Schulz updates as steps were applied, and every other parameter none. The trainer's summary shows the
# same.
source tests/integration/real_cluster.sh

start 2 2
train "$TEST_TMPDIR/service" --workers 2 --steps 9 --poison-step 4 || { cat "$TEST_TMPDIR/service"; exit 1; }
"$KAONCTL" --dir "$DIR" -o json parameters >"$TEST_TMPDIR/parameters"
"$KAONCTL" --dir "$DIR" parameters --filter hidden
tail -n 1 "$TEST_TMPDIR/service" >"$TEST_TMPDIR/summary"
python3 tests/integration/check_parameters.py "$TEST_TMPDIR/parameters" "$TEST_TMPDIR/summary" || fail "parameters"
# Checks each matrix: its last update was as orthogonal as its coefficients make it.
names=$(python3 -c 'import json, sys; print(*[row["name"] for row in json.load(sys.stdin)["parameters"]], sep="\n")' \
  <"$TEST_TMPDIR/parameters")
for name in $names; do
  "$KAONCTL" --dir "$DIR" -o json parameter stats "$name" >>"$TEST_TMPDIR/stats" || fail "stats of $name"
  "$KAONCTL" --dir "$DIR" -o json parameter diagnostics "$name" >>"$TEST_TMPDIR/diagnostics" || fail "diagnostics of $name"
done
python3 tests/integration/check_parameter_stats.py "$TEST_TMPDIR/stats" "$TEST_TMPDIR/diagnostics" || fail "parameter stats"
# The first sample is of an early step; its values are a line of the CSV.
matrix=$(grep -m 1 "^block.*weight" <<<"$names")
"$KAONCTL" --dir "$DIR" parameter history "$matrix" -o csv >"$TEST_TMPDIR/history" || fail "history of $matrix"
grep -E '^step,weight_norm,.*,stable_rank$' "$TEST_TMPDIR/history" >/dev/null || fail "columns: $(cat "$TEST_TMPDIR/history")"
grep -E '^[1-9],[0-9.]+,[0-9.e-]+,[0-9.e-]+,[0-9.e-]+,[0-9.]+,[0-9.]+$' "$TEST_TMPDIR/history" >/dev/null ||
  fail "samples: $(cat "$TEST_TMPDIR/history")"
"$KAONCTL" --dir "$DIR" parameter read "$matrix" --tensor momentum_buffer --offset 3 --count 2 >"$TEST_TMPDIR/read" ||
  fail "values of $matrix"
[ "$(tail -n 2 "$TEST_TMPDIR/read" | awk '{print $1}' | xargs)" = "3 4" ] || fail "values: $(cat "$TEST_TMPDIR/read")"
refusal=$("$KAONCTL" --dir "$DIR" parameter stats "${name^^}" 2>&1 || true)
[[ $refusal == *"did you mean \"$name\""* ]] || fail "a suggestion: $refusal"
# People get the table of groups, routes and clipping, too.
"$KAONCTL" --dir "$DIR" job show | grep adamw >/dev/null || fail "job show"
stop
finish
