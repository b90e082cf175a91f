#!/bin/bash
# Builds each of the numeric bugs of kernels/mutation.h into the kernels, one at a time, and runs the numeric tests: they
# must fail. Only the sources that the bug is in are built again.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/mutation.sh [NUMBER]...

Without numbers, every mutation that kernels/mutation.h lists. One line for each; the last line is `N/M found`.
Exit status: 0 if every one was found.
TEXT
}

case "${1:-}" in
  --help | -h) usage; exit 0 ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. tests/mutation_driver.sh
# Tried one after the other: the table finds nearly all, and is built much faster than everything.
stages=("//tests/conformance:numerics_table_test" "//tests/kernels/... //tests/job/...")

find_mutation() {
  local stage targets status
  for stage in "${stages[@]}"; do
    status=0
    read -ra targets <<<"$stage"
    # The first failure ends it.
    bazel test --notest_keep_going --nokeep_going --noshow_progress --test_output=errors \
      "--disk_cache=$(deploy/disk_cache.sh)" "$2" -- "${targets[@]}" >"$3" 2>&1 </dev/null || status=$?
    [ "$status" -eq 0 ] || break
  done
  case "$status" in
    0) return 1 ;;
    # Built, and a test failed.
    3) echo "by $(grep -oE '^//tests[^ ]+ +FAILED' "$3" | head -n 1 | cut -d ' ' -f 1)" ;;
    *) return 2 ;;
  esac
}

try_mutations kernels/mutation.h KAON_MUTATION "$@"
