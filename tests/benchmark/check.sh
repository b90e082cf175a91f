#!/bin/bash
# The regression gate: runs every benchmark and compares its ratio with the one in docs/benchmarks.md.
set -euo pipefail
case "${1:-}" in
  "") ;;
  --help | -h)
    cat <<'TEXT'
Usage: tests/benchmark/check.sh

Fails if a ratio is below 0.9 of the table in docs/benchmarks.md. It runs a benchmark with such a ratio twice more, and the
median of three counts, since machines are shared. Takes 15 minutes, or up to 45.
TEXT
    exit 0 ;;
  *) echo "check.sh: unknown option $1; see --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
# measure RUN NAME...: writes each benchmark's rows to $work/RUN/NAME
measure() {
  local run=$1 name
  shift
  mkdir "$work/$run"
  for name in "$@"; do
    echo "== $name, run $run"
    tests/benchmark/run.sh --json "$work/$run/$name" "$name"
  done
}
compare() { python3 tests/benchmark/check.py "$@" docs/benchmarks.md "$work"/*/*; }

measure 1 optimizer_step muon_step push_pull step_time journal_bandwidth shard_memory
if compare; then exit 0; fi
mapfile -t short < <(compare --again)
for run in 2 3; do measure "$run" "${short[@]##*/}"; done
compare
