#!/bin/bash
# Runs every test that is not a nightly one, in one optimized build; the last line is `N passed, M failed`.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/run.sh [TARGET]...

Installs what the tests need, then builds and tests TARGET, which is everything by default. Lists the ten slowest tests.
A test that fails runs a second time. If it passes then, the script lists it as FLAKY and does not count a failure. Tests
that would show a lost step have one attempt: tests/simulation, and tests/crash except for its times and disk faults.
The last line counts test cases. Exit status: 0 if none failed.
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
for argument in "$@"; do
  case "$argument" in
    --help | -h) usage; exit 0 ;;
    -*) echo "run.sh: unknown option $argument; see --help" >&2; exit 2 ;;
  esac
done
[ $# -gt 0 ] || set -- //...

# shellcheck source=deploy/progress.sh
source "$root/deploy/progress.sh"
# shellcheck source=deploy/bazel_server.sh
source "$root/deploy/bazel_server.sh"
"$root/deploy/install_packages.sh" --test
cd "$root"
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-tests.XXXXXX")
trap 'rm -rf "$work"' EXIT
# After Ctrl-C no Bazel server is left that was not there before. A run that ends keeps its server for the next one.
bazel_server_begin "$root"
trap 'bazel_server_end; exit 130' INT
# Bazel uses the last attempts option whose pattern matches a label. count_results.py counts failures from the events.
with_progress "tests" bazel test --keep_going --config=opt "--disk_cache=$(deploy/disk_cache.sh)" "${PROGRESS_OF_BAZEL[@]}" \
  --ui_event_filters=-info "--build_event_json_file=$work/events.json" --flaky_test_attempts=2 \
  '--flaky_test_attempts=^//tests/(crash:(clean|control|crash|history|interval|restore|syscall)|simulation[:/])@1' \
  "$@" </dev/null || echo "bazel test: exit status $?"
python3 tests/count_results.py "$work/events.json"
