#!/bin/bash
# Switches on each of the bugs of server/mutation/mutation.h, one at a time, and simulates clusters until a seed finds it.
# The servers are built once, with all of them in.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/protocol_mutation.sh [--seeds N] [--config NAME] [NUMBER]...

  --seeds N       seeds to try for each (default 10000)
  --config NAME   Bazel configuration to build with (default opt; none for no configuration)
Without numbers, every mutation that server/mutation/mutation.h lists. One line for each, with the seed that found it; the
last line is `N/M found`. Exit status: 0 if every one was found.
TEXT
}

seeds=10000
config=opt
while [[ ${1:-} == -* ]]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --seeds) seeds=$2; shift 2 ;;
    --config) config=$2; shift 2 ;;
    *) usage >&2; exit 2 ;;
  esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. tests/mutation_driver.sh

users=$(grep -rl --include='*.cc' '^#include "server/mutation/mutation.h"' server tests/simulation | paste -sd '|')
options=("--per_file_copt=^(${users//./\\.})\$@-DKAON_PROTOCOL_MUTATIONS")
[ "$config" = none ] || options+=("--config=$config")
bazel build --noshow_progress "--disk_cache=$(deploy/disk_cache.sh)" "${options[@]}" \
  //tests/simulation:step_simulation_test >&2

find_mutation() {
  local status=0 seed
  .bazel/bin/tests/simulation/step_simulation_test "--mutation=$1" "--seeds=$seeds" --gtest_filter='*KeepsEveryPromise*' \
    >"$3" 2>&1 </dev/null || status=$?
  [ "$status" -ne 0 ] || return 1
  # A process that a CHECK ended says at which seed as well. The counts at the end are no finding.
  seed=$(grep -oE '^FOUND seed +[0-9]+ *: .*' "$3" | head -n 1) || return 1
  echo "at ${seed#FOUND }" | cut -c 1-200
}

try_mutations server/mutation/mutation.h unused "$@"
