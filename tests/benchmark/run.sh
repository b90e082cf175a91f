#!/bin/bash
# Runs every benchmark together with the limit that it is compared with; prints a table on standard output.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/benchmark/run.sh [--json FILE] [--write] [--quick] [NAME]...

Builds (opt) and runs the benchmarks NAME: optimizer_step, muon_step, push_pull, step_time, journal_bandwidth,
tier_step, shard_memory. Without a NAME it runs all of these. step_vs_torch needs Debian's python3-torch and runs only by name.
  --json FILE   one JSON object per line: name, value, min, max, unit, limit, limit_min, limit_max, limit_name, ratio, settings
  --write       writes the ratios into the table of docs/benchmarks.md, with machine, date and commit
  --quick       small sizes, to see that everything runs; the figures mean nothing
Prints medians of at least five rounds, work and limit by turns. Run it on an idle machine: it takes about 15 minutes.
TEXT
}

json=
quick=
write=
names=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --json) json=$(realpath -m "${2:?--json needs a file}"); shift ;;
    --quick) quick=1 ;;
    --write) write=1 ;;
    optimizer_step | muon_step | push_pull | step_time | journal_bandwidth | tier_step | shard_memory | step_vs_torch) names+=("$1") ;;
    *) echo "run.sh: '$1' is no option and no benchmark; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ -z "$quick" ] || [ -z "$write" ] || { echo "run.sh: figures of --quick are not for --write" >&2; exit 2; }
[ ${#names[@]} -gt 0 ] || names=(optimizer_step muon_step push_pull step_time journal_bandwidth tier_step shard_memory)

cd "$(dirname "$0")/../.."
packages=()
[[ " ${names[*]} " != *" step_vs_torch "* ]] || packages=(--torch)
deploy/install_packages.sh "${packages[@]}"
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-benchmark.XXXXXX")
trap 'rm -rf "$work"' EXIT
bazel build --config=opt "--disk_cache=$(deploy/disk_cache.sh)" --noshow_progress --ui_event_filters=-info \
  "${names[@]/#///tests/benchmark:}" </dev/null
deploy/certificates.sh "$work/tls" --workers 4 --job push-pull
for name in "${names[@]}"; do
  if [ "$name" = shard_memory ]; then
    # A script, which finds the programs in what bazel lays out for it.
    if [ -n "$quick" ]; then size=(HIDDEN=64 BLOCKS=1 STEPS=2); else size=(BLOCKS=8 STEPS=3); fi
    env "${size[@]}" bazel run --config=opt "--disk_cache=$(deploy/disk_cache.sh)" --noshow_progress \
      --ui_event_filters=-info //tests/benchmark:shard_memory -- --json "$work/$name.json" </dev/null
    continue
  fi
  options=()
  case "$name${quick:+ quick}" in
    "optimizer_step quick") options=(--million-elements 1) ;;
    "muon_step quick") options=(--shapes 64x64,64x256 --small-matrices 2) ;;
    "push_pull") options=(--tensors 10,10000 --transports grpc,shm,tls --certificates "$work/tls") ;;
    "push_pull quick") options=(--mebibytes 4 --workers 1,2 --transports grpc,shm,tls --certificates "$work/tls") ;;
    "step_time quick") options=(--million-elements 0) ;;
    "journal_bandwidth") options=(--directory "$work") ;;
    "step_vs_torch quick") options=(--million-elements 8) ;;
    "tier_step") options=(--directory "$work") ;;
    "tier_step quick") options=(--directory "$work" --million-elements 1 --side 64 --staging-mib 1) ;;
    "journal_bandwidth quick") options=(--directory "$work" --mebibytes 4) ;;
  esac
  .bazel/bin/tests/benchmark/"$name" --json "$work/$name.json" "${options[@]}"
done
[ -z "$json" ] || (cd "$work" && cat "${names[@]/%/.json}") >"$json"
[ -z "$write" ] || python3 tests/benchmark/ratio_table.py docs/benchmarks.md "$work"/*.json
