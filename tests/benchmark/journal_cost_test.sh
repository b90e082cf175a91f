#!/bin/bash
# journal_cost.sh still runs, and has a figure of each mode: what it measures of so few steps means nothing.
set -euo pipefail

printed=$TEST_TMPDIR/printed
STEPS=3 ROUNDS=1 HIDDEN=48 tests/benchmark/journal_cost.sh >"$printed" || { cat "$printed"; exit 1; }
cat "$printed"
failures=0
# expect REGEX: a line of what it printed.
expect() {
  grep -qE "$1" "$printed" || { echo "FAILED: no line like $1"; failures=$((failures + 1)); }
}
step=' +[0-9]+\.[0-9] ms per step, [+-][0-9]+\.[0-9] ms'
disk='; [0-9.]+ MB per step and shard on disk: [0-9]+ MB/s, the disk alone [0-9]+ MB/s \([0-9.]+ ms\)'
expect "^none$step\$"
expect "^interval\\(50\\)$step"
expect "^journal$step$disk\$"
exit "$failures"
