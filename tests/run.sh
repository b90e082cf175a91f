#!/bin/bash
# Runs every test that is not a nightly one; the last line is `N passed, M failed`.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/run.sh [--config NAME]... [--within MINUTES] [--attempts N] [TARGET]...

Installs what the tests need, then builds and tests in three parts: libFuzzer on every parser of bytes, 10 s each, from
its saved corpus (fuzz: clang, only //tests/fuzz); everything as users run it (opt); everything as programmers build it
(fastbuild), but for the long trouble between real processes of tests/crash and tests/network (tagged opt_only).

  --config NAME      only that part; may be repeated
  --within MINUTES   begin no part after so many minutes; what was left out is said before the last line, and counts as
                     a failure unless it is fastbuild, most of which opt has run
  --attempts N       run a failed test up to N times; one that then passes is listed as FLAKY and does not fail the run.
                     Never in fuzz, where a second attempt draws other inputs, nor what kills and then looks for lost steps
                     (tests/simulation, tests/crash but for times and faults of its disk): lost once is lost
  TARGET             only those; without fuzz unless --config asks for it
The last line counts test cases of all parts. Exit status: 0 if none failed.
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
configs=()
targets=()
within=
attempts=1
number_of() {
  [[ "${2:-}" =~ ^[1-9][0-9]{0,5}$ ]] || { echo "run.sh: $1 is '${2:-}', must be a number from 1 to 999999" >&2; exit 2; }
  echo "$2"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --config) configs+=("${2:?--config needs a name}"); shift ;;
    --within) within=$(number_of "$@"); shift ;;
    --attempts) attempts=$(number_of "$@"); shift ;;
    -*) echo "run.sh: unknown option $1; see --help" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if [ ${#configs[@]} -eq 0 ]; then
  configs=(opt fastbuild)
  [ ${#targets[@]} -gt 0 ] || configs=(fuzz opt fastbuild)
fi

packages=(--test)
for config in "${configs[@]}"; do
  [ "$config" != fuzz ] || packages+=(--sanitizers)
done
"$root/deploy/install_packages.sh" "${packages[@]}"
cd "$root"
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-tests.XXXXXX")
trap 'rm -rf "$work"' EXIT

events=()
left_out=()
for config in "${configs[@]}"; do
  if [ -n "$within" ] && [ $((SECONDS / 60)) -ge "$within" ]; then
    left_out+=("$config")
    continue
  fi
  echo "==> bazel test, $config"
  options=(--keep_going "--disk_cache=$(deploy/disk_cache.sh)"
    --noshow_progress --ui_event_filters=-info "--build_event_json_file=$work/$config.json")
  [ "$config" = fastbuild ] || options+=("--config=$config")
  what=("${targets[@]}")
  case "$config" in
    fuzz)
      options+=(--build_tests_only)
      if ! strace -o /dev/null true 2>/dev/null; then
        echo "fuzz: processes may not be traced here: leaks are not looked for"
        options+=("--test_env=ASAN_OPTIONS=detect_leaks=0")
      fi
      # AddressSanitizer of clang 14 finds no room for its shadow where addresses are drawn from more bits.
      if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch "$(uname -m)" -R true; then
        options+=("--run_under=setarch $(uname -m) -R")
      fi
      [ ${#what[@]} -gt 0 ] || what=(//tests/fuzz/...)
      ;;
    fastbuild) options+=("--test_tag_filters=-nightly,-gpu,-opt_only") ;;
  esac
  [ ${#what[@]} -gt 0 ] || what=(//...)
  # Of several, the last whose pattern fits a label holds.
  [ "$config" = fuzz ] || options+=("--flaky_test_attempts=$attempts"
    '--flaky_test_attempts=^//tests/(crash:(clean|control|crash|history|interval|restore|syscall)|fuzz[:/]|simulation[:/])@1')
  events+=("$work/$config.json")
  # What failed is counted from the events, so the next part runs in any case.
  bazel test "${options[@]}" "${what[@]}" </dev/null || echo "bazel test, $config: exit status $?"
  # The next part overwrites them; tests/report.py wants all.
  python3 tests/keep_logs.py "$work/$config.json" ".bazel/kept/$config" || echo "keep_logs.py: exit status $?"
  # Another run draws other inputs: what failed, and the input if it is short.
  [ "$config" != fuzz ] || grep -rE 'Check failed|^SUMMARY: |^Base64: ' .bazel/kept/fuzz || true
done
for config in ${left_out[@]+"${left_out[@]}"}; do
  echo "NOT RUN  $config: $within minutes were over before it could begin"
  # There are no events of it, which is one failure.
  [ "$config" = fastbuild ] || events+=("$work/$config.json")
done
python3 tests/count_results.py "${events[@]}"
