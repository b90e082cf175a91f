#!/bin/bash
# The regression gate: runs every benchmark and compares its ratio with the one in docs/benchmarks.md.
set -euo pipefail
case "${1:-}" in
  "") ;;
  --help | -h) echo "Usage: tests/benchmark/check.sh: fails when a ratio is below 0.9 of that in docs/benchmarks.md"; exit 0 ;;
  *) echo "check.sh: unknown option $1; see --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
tests/benchmark/run.sh --json "$work/measured"
python3 tests/benchmark/check.py "$work/measured" docs/benchmarks.md
