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
wanted=" $* "
# Tried one after the other: the table finds nearly all, and is built much faster than everything.
stages=("//tests/conformance:numerics_table_test" "//tests/kernels/... //tests/job/...")
mapfile -t rows < <(sed -nE 's|^ *(k[A-Za-z0-9]+) = ([0-9]+),  // (.+)$|\2 \1 \3|p' kernels/mutation.h)
[ ${#rows[@]} -gt 0 ] || { echo "mutation.sh: kernels/mutation.h lists no mutation" >&2; exit 2; }

found=0
tried=0
log=$(mktemp "${TMPDIR:-/tmp}/kaon-mutation.XXXXXX")
trap 'rm -f "$log"' EXIT
for row in "${rows[@]}"; do
  read -r number name sources <<<"$row"
  [ $# -eq 0 ] || [[ $wanted == *" $number "* ]] || continue
  tried=$((tried + 1))
  for stage in "${stages[@]}"; do
    status=0
    read -ra targets <<<"$stage"
    # The first failure ends it.
    bazel test --notest_keep_going --nokeep_going --noshow_progress --test_output=errors \
      "--disk_cache=${XDG_CACHE_HOME:-$HOME/.cache}/kaon-bazel" \
      "--per_file_copt=^${sources}\.cc\$@-DKAON_MUTATION=$number" \
      -- "${targets[@]}" >"$log" 2>&1 </dev/null || status=$?
    [ "$status" -eq 0 ] || break
  done
  # 3: built, and a test failed.
  case "$status" in
    3)
      found=$((found + 1))
      echo "$number $name: found by $(grep -oE '^//tests[^ ]+ +FAILED' "$log" | head -n 1 | cut -d ' ' -f 1)"
      ;;
    0) echo "$number $name: NOT FOUND" ;;
    *)
      echo "$number $name: bazel ended with status $status" >&2
      tail -n 40 "$log" >&2
      exit 2
      ;;
  esac
done
echo "$found/$tried found"
[ "$found" -eq "$tried" ]
