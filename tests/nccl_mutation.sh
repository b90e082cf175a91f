#!/bin/bash
# Builds each of the bugs of kernels/nccl/channel_bug.h into gradients over NCCL, one at a time, and runs their tests over
# the fake fabric: they must fail. Only the sources that the bug is in are built again.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/nccl_mutation.sh [--config NAME] [NUMBER]...

  --config NAME   Bazel configuration to build with (default opt; none for no configuration)
Without numbers, every bug that kernels/nccl/channel_bug.h lists. One line for each; the last line is `N/M found`.
Exit status: 0 if every one was found.
TEXT
}

config=opt
while [[ ${1:-} == -* ]]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --config) config=$2; shift 2 ;;
    *) usage >&2; exit 2 ;;
  esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. tests/mutation_driver.sh

options=(--notest_keep_going --nokeep_going --noshow_progress --test_output=errors "--disk_cache=$(deploy/disk_cache.sh)")
[ "$config" = none ] || options+=("--config=$config")

find_mutation() {
  local status=0
  bazel test "${options[@]}" "$2" -- //tests/kernels/nccl/... //tests/server/shard/transport:nccl_{endpoint,slots}_test \
    //tests/server/shard/transport:nccl_{push,pull_stream,byzantine}_test //tests/client/transport:nccl_{lane,pull,shard_channel,equality}_test >"$3" 2>&1 </dev/null || status=$?
  case "$status" in
    0) return 1 ;;
    # Built, and a test failed.
    3) echo "by $(grep -oE '^//tests[^ ]+ +(FAILED|TIMEOUT)' "$3" | head -n 1 | cut -d ' ' -f 1)" ;;
    *) return 2 ;;
  esac
}

try_mutations kernels/nccl/channel_bug.h KAON_NCCL_BUG "$@"
