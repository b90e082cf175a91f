#!/bin/bash
# The regression gate: runs every benchmark and compares its ratio with the one in docs/benchmarks.md.
set -euo pipefail
case "${1:-}" in
  "") ;;
  --help | -h)
    cat <<'TEXT'
Usage: tests/benchmark/check.sh

Fails when a ratio is below 0.9 of that in docs/benchmarks.md. A benchmark with such a ratio is run again, up to twice, and each
row's highest counts: machines are shared. 15 minutes, or up to 45.
TEXT
    exit 0 ;;
  *) echo "check.sh: unknown option $1; see --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
names=(optimizer_step muon_step push_pull step_time journal_bandwidth shard_memory)
for attempt in 1 2 3; do
  mkdir "$work/$attempt"
  for name in "${names[@]}"; do
    echo "== $name, run $attempt of at most 3"
    tests/benchmark/run.sh --json "$work/$attempt/$name" "$name"
  done
  mapfile -t short < <(python3 tests/benchmark/check.py --again docs/benchmarks.md "$work"/*/*)
  names=()
  for file in "${short[@]}"; do
    [ "$(dirname "$file")" != "$work/$attempt" ] || names+=("$(basename "$file")")
  done
  [ ${#names[@]} -gt 0 ] || break
done
python3 tests/benchmark/check.py docs/benchmarks.md "$work"/*/*
