#!/bin/bash
# The suites that take too long for every change. Each ends within 40 minutes on two cores (bench, where ratios fall short and
# are measured again, within 60) and prints one table row, as kept in docs/nightly.md.
set -euo pipefail

suites=(
  "fastbuild:everything as programmers build it, without what is tagged opt_only"
  "asan:everything under AddressSanitizer and LeakSanitizer"
  "ubsan:everything under UndefinedBehaviorSanitizer"
  "tsan:everything above the transport under ThreadSanitizer, with the reference matrix product; each thread of a CUDA kernel on the host is a thread to it"
  "tsa:clang's thread-safety analysis of every library and program; nothing is run"
  "sim:50,000 simulated clusters, and 3,000 of the size of the protocol's model with their rate (tests tagged nightly under tests/simulation)"
  "network:60 schedules of network faults, attacks on memory for a minute each (tests/network:{chaos,memory_attack}_nightly_test)"
  "frozen:peers stopped for up to a minute, connections half-open for ever, histories beside network faults (tests/network:{frozen_peers,half_open}_nightly_test, tests/crash:history_network_nightly_test)"
  "fuzz:libFuzzer for 3 minutes on every parser of bytes, whose saved corpora every run of the tests replays (tests tagged nightly under tests/fuzz)"
  "coverage:the saved corpus of every fuzz target runs 90 % of its parser's lines (tests/fuzz_coverage.py)"
  "mutation:every numeric bug of kernels/mutation.h, built in one at a time, is found by a test (tests/mutation.sh)"
  "nccl:every bug of kernels/nccl/channel_bug.h, built in one at a time, is found by a test (tests/nccl_mutation.sh)"
  "protocol:every protocol bug of server/mutation/mutation.h, built in one at a time, is found by a simulation (tests/protocol_mutation.sh)"
  "crash:3,000 crashes of real processes at failpoints, 500 of an interval job, histories during 1,000 and 300, a crash over NCCL at each of 49 failpoints (tests/crash:*_cycles_nightly_test, history_interval_nightly_test, nccl_points_nightly_test)"
  "sweep:a crash at every system call of a shard, a failure of every read, full and failing disks, every point of a restore, every moment of a control change (tests/crash:syscall_sweep_, disk_faults_, read_faults_, restore_ and control_crashes_nightly_test)"
  "recovery:100 recoveries with 64 MiB of state, 3 with 1 GiB, and a kill of a shard whose job is ten times its memory (tests/crash:recovery_time_nightly_test and large_recovery_nightly_test, tests/integration:larger_than_memory_nightly_test)"
  "bench:every benchmark's ratio to its limit beside docs/benchmarks.md (tests/benchmark/check.sh)"
  "install:the packages in a fresh root file system, a trainer in a Bazel workspace of its own, and deploy/kubernetes against the API's schemas (tests tagged nightly under tests/install and tests/deploy)"
  "wheel:the Python wheel in fresh virtual environments beside the newest torch of pip and Debian's, and what auditwheel says of it (tests/install/wheel.sh)"
  "monitor:promtool and a real Prometheus on deploy/prometheus; the status page in Chromium, with screenshots (tests/deploy:promtool_nightly_test, tests/integration:prometheus_nightly_test and status_page_nightly_test)"
  "containers:deploy/compose.yaml trains in the image while containers are killed and stopped (deploy/container_smoke.sh)"
  "torch:tests of Python and libtorch with other releases of torch than Debian's, which PYTHONPATH and KAON_LIBTORCH name, and with the packages safetensors, jax and matplotlib where python3 finds them (tests under tests/torch, tests/client/python and tests/client/libtorch)"
)

usage() {
  cat <<'TEXT'
Usage: tests/nightly.sh --suite NAME | --list

  --suite NAME   run one suite; KAON_ALLOW_SKIPS=1 lets it pass where strace or mount is not permitted
  --list         print the suites
The last line is a row: | suite | date | commit | result | passed | failed | minutes |
Exit status: 0 if the suite passed.
TEXT
}

list() {
  local suite
  for suite in "${suites[@]}"; do printf '%-9s %s\n' "${suite%%:*}" "${suite#*:}"; done
}

suite=
case "${1:-}" in
  --help | -h) usage; exit 0 ;;
  --list) list; exit 0 ;;
  --suite) suite=${2:-} ;;
  *) usage >&2; exit 2 ;;
esac

# What Bazel is asked to do for each suite.
verb=test
targets=(//...)
packages=(--sanitizers)
seconds=2340
case "$suite" in
  fastbuild) options=(--test_tag_filters=-nightly,-gpu,-opt_only); packages=() ;;
  # What draws at random (shm_session_random_test) draws something else each day, and prints the seed.
  asan | ubsan | tsan) options=("--config=$suite" --build_tests_only "--test_env=KAON_SEED=$(date -u +%Y%m%d)") ;;
  tsa) verb=build; options=(--config=tsa) ;;
  sim) options=(--config=opt --test_tag_filters=nightly); targets=(//tests/simulation/...) ;;
  network) options=(--config=opt --test_tag_filters=nightly); targets=(//tests/network:{chaos,memory_attack}_nightly_test); packages=() ;;
  frozen) options=(--config=opt --test_tag_filters=nightly); targets=(//tests/network:{frozen_peers,half_open}_nightly_test //tests/crash:history_network_nightly_test); packages=() ;;
  install) options=(--config=opt --test_tag_filters=nightly --test_output=all --test_env=KAON_TEST_ROOT); targets=(//tests/{install,deploy}/...); packages=(--package --schemas) ;;
  monitor) options=(--config=opt --test_tag_filters=nightly --test_output=all); targets=(//tests/deploy:promtool_nightly_test //tests/integration:{prometheus,status_page}_nightly_test); packages=(--monitor) ;;
  torch) options=(--config=opt --test_tag_filters= --test_output=all --test_env=PYTHONPATH --test_env=KAON_LIBTORCH); targets=(//tests/torch/... //tests/client/python/... //tests/client/libtorch/...); packages=() ;;
  crash | sweep | recovery)
    options=(--config=opt --test_tag_filters=nightly --test_output=all)
    packages=()
    case "$suite" in
      crash) targets=(//tests/crash:{{crash,interval,history}_cycles,history_interval,nccl_points}_nightly_test) ;;
      sweep) targets=(//tests/crash:{syscall_sweep,disk_faults,read_faults,restore_crashes,control_crashes}_nightly_test) ;;
      recovery) targets=(//tests/crash:{recovery_time,large_recovery}_nightly_test //tests/integration:larger_than_memory_nightly_test) ;;
    esac
    ;;
  bench) verb=script; script=tests/benchmark/check.sh; options=(); packages=(); seconds=3540 ;;
  fuzz) options=(--config=fuzz --build_tests_only --test_tag_filters=nightly); targets=(//tests/fuzz/...) ;;
  coverage) verb=script; script=tests/fuzz_coverage.py; options=() ;;
  mutation) verb=script; script=tests/mutation.sh; options=(); packages=() ;;
  nccl) verb=script; script=tests/nccl_mutation.sh; options=(); packages=() ;;
  containers) verb=script; script=deploy/container_smoke.sh; options=(); packages=(--containers) ;;
  wheel) verb=script; script=tests/install/wheel.sh; options=(); packages=(--package --wheel) ;;
  protocol) verb=script; script=tests/protocol_mutation.sh; options=(); packages=() ;;
  *) echo "nightly.sh: unknown suite '$suite'; there are:" >&2; list >&2; exit 2 ;;
esac

case "$suite" in
  asan | fuzz)
    if ! strace -o /dev/null true 2>/dev/null; then
      echo "$suite: processes may not be traced here: leaks are not looked for"
      options+=("--test_env=ASAN_OPTIONS=detect_leaks=0")
    fi
    # AddressSanitizer of clang 14 finds no room for its shadow where addresses are drawn from more bits.
    if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch "$(uname -m)" -R true; then
      options+=("--run_under=setarch $(uname -m) -R")
    fi
    ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
deploy/install_packages.sh --test "${packages[@]}"
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-nightly.XXXXXX")
trap 'rm -rf "$work"' EXIT
start=$SECONDS
result=0
if [ "$suite" = install ]; then
  python3 -m pip install -q --root-user-action=ignore --target "$work/python" kubernetes-validate==1.37.0 || result=1
  # The packages that it makes name the commit, as those for users do.
  options+=("--define=kaon_commit=$(deploy/commit.sh)" "--test_env=PYTHONPATH=$work/python")
fi
touch "$work/start"
if [ "$verb" = script ]; then
  timeout --signal=INT --kill-after=60 "$seconds" "$script" | tee "$work/log" || result=$?
else
  # Sanitized tests are several times slower than the sizes in the BUILD files assume.
  timeout --signal=INT --kill-after=60 "$seconds" bazel "$verb" --keep_going "${options[@]}" \
    "--disk_cache=$(deploy/disk_cache.sh)" --test_timeout=600,900,1800,2100 --test_env=KAON_ALLOW_SKIPS \
    --noshow_progress --ui_event_filters=-info "--build_event_json_file=$work/events.json" \
    -- "${targets[@]}" </dev/null || result=$?
fi
if [ "$verb" = test ]; then
  counts=$(python3 tests/count_results.py "$work/events.json") || result=1
  echo "$counts"
  numbers=$(tail -n 1 <<<"$counts" | sed 's/\([0-9]*\) passed, \([0-9]*\) failed/\1 | \2/')
elif [ "$verb" = script ]; then
  numbers=$(sed -nE 's#^([0-9]+)(/| of )([0-9]+) (found$|ratios |parsers |checks ).*#\1 \3#p' "$work/log" | tail -n 1 | awk '{print $1 " | " $2 - $1}')
else
  numbers='- | -'
fi
# What tests/report.py reads.
mkdir -p .bazel
if [ "$verb" = script ]; then
  cp "$work/log" ".bazel/nightly-$suite.log"
elif [ "$verb" = test ]; then
  find -L .bazel/testlogs/ -name test.log -newer "$work/start" -exec cat {} + >".bazel/nightly-$suite.log" || true
fi
outcome=passed
[ "$result" -eq 0 ] || outcome=FAILED
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
echo "| $suite | $(date -u +%F) | $commit | $outcome | $numbers | $(((SECONDS - start + 59) / 60)) |"
[ "$result" -eq 0 ]
