#!/bin/bash
# Runs every test that is not a nightly one; the last line is `N passed, M failed`.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/run.sh [--config NAME]... [TARGET]...

Installs what the tests need, then builds and tests everything twice: as programmers build (fastbuild) and as users run
(opt). --config NAME does only that one; TARGET (default //...) only those.
The last line counts test cases of all configurations. Exit status: 0 if none failed.
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
configs=()
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --config) configs+=("${2:?--config needs a name}"); shift ;;
    -*) echo "run.sh: unknown option $1; see --help" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[ ${#configs[@]} -gt 0 ] || configs=(fastbuild opt)
[ ${#targets[@]} -gt 0 ] || targets=(//...)

"$root/deploy/install_packages.sh" --test
cd "$root"
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-tests.XXXXXX")
trap 'rm -rf "$work"' EXIT

events=()
for config in "${configs[@]}"; do
  echo "==> bazel test, $config"
  options=(--keep_going "--disk_cache=${XDG_CACHE_HOME:-$HOME/.cache}/kaon-bazel"
    --noshow_progress --ui_event_filters=-info "--build_event_json_file=$work/$config.json")
  [ "$config" = fastbuild ] || options+=("--config=$config")
  events+=("$work/$config.json")
  # What failed is counted from the events, so the second configuration runs in any case.
  bazel test "${options[@]}" "${targets[@]}" </dev/null || echo "bazel test, $config: exit status $?"
  # The next part overwrites them; tests/report.py wants all.
  python3 tests/keep_logs.py "$work/$config.json" ".bazel/kept/$config" || echo "keep_logs.py: exit status $?"
done
python3 tests/count_results.py "${events[@]}"
