#!/bin/bash
# Runs tests/benchmark/check.sh with benchmarks that print listed ratios: which it runs again, and what it decides.
set -euo pipefail
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tests/benchmark" "$tree/docs"
cp tests/benchmark/{check.sh,check.py,ratio_table.py} "$tree/tests/benchmark/"
cat >"$tree/docs/benchmarks.md" <<'TEXT'
<!-- ratios: begin -->
| nobody's (family 0 model 0), 1 CPUs | 2026-11-25 | abc1234 | `push` | 1 worker | 0.80 | 0.50 |
| nobody's (family 0 model 0), 1 CPUs | 2026-11-25 | abc1234 | `journal` | 64 MiB | 0.90 | - |
<!-- ratios: end -->
TEXT
# run.sh --json FILE NAME: the next line of ratios of NAME.
cat >"$tree/tests/benchmark/run.sh" <<'TEXT'
#!/bin/bash
case "$3" in
  push_pull) row='"push", "settings": "1 worker"' ;;
  journal_bandwidth) row='"journal", "settings": "64 MiB"' ;;
  *) : >"$2"; exit 0 ;;
esac
echo "$3" >>ran
ratio=$(sed -n "$(grep -c "$3" ran)p" "ratios-$3")
if [ -n "$ratio" ]; then echo "{\"name\": $row, \"ratio\": $ratio}"; fi >"$2"
TEXT
chmod +x "$tree/tests/benchmark/run.sh"

failed=0
# expect STATUS RUNS LAST PUSHES JOURNALS: of those ratios, run by run
expect() {
  local status=0
  rm -f "$tree/ran"
  tr ' ' '\n' <<<"$4" >"$tree/ratios-push_pull"
  tr ' ' '\n' <<<"$5" >"$tree/ratios-journal_bandwidth"
  "$tree/tests/benchmark/check.sh" >"$TEST_TMPDIR/out" 2>&1 || status=$?
  local runs last
  runs=$(wc -l <"$tree/ran")
  last=$(tail -n 1 "$TEST_TMPDIR/out")
  if [ "$status $runs $last" != "$1 $2 $3 ratios are at least 0.9 of the table's" ]; then
    echo "FAILED: push $4, journal $5: exit $status after $runs runs, wanted: $*"
    cat "$TEST_TMPDIR/out"
    failed=1
  fi
}
# says_other STATUS: checks whether it says that the table is of another processor
says_other() {
  local status=0
  grep -q "^the table is of nobody's (family 0 model 0), 1 CPUs, this machine is " "$TEST_TMPDIR/out" || status=$?
  [ "$status" -eq "$1" ] || { echo "FAILED: other processors, wanted $1"; cat "$TEST_TMPDIR/out"; failed=1; }
}
expect 0 2 "2 of 2" "0.8" "0.9"
says_other 1
# Once low; the other is not run again.
expect 0 4 "2 of 2" "0.3 0.8 0.75" "0.9"
# Low in two of three.
expect 1 4 "1 of 2" "0.3 0.8 0.4" "0.9"
says_other 0
expect 1 6 "0 of 2" "0.3 0.3 0.3" "0.5 0.6 0.7"
# Not measured.
expect 1 2 "1 of 2" "0.8" ""
exit "$failed"
