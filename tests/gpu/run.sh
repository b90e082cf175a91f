#!/bin/bash
# Runs everything that needs a GPU, within one time budget, and prints one table. See docs/gpu-verification.md.
set -uo pipefail

SECTIONS=(probe twins conformance products determinism bench peers cluster trainer sanitizer)

usage() {
  cat <<TEXT
Usage: tests/gpu/run.sh [--out DIR] [--sections A,B] [--again A]... [--budget SECONDS] [--cpu-smoke] [--programs DIR]
                        [--write PAGE]

Runs these sections in order: ${SECTIONS[*]}.
  --out DIR         where results go (default: kaon-gpu-results); a second run with the same DIR skips finished sections
  --sections A,B    only these
  --again A         repeats a finished section
  --budget SECONDS  time for all sections of this run (default: 540); a section that is cut counts as failed
  --cpu-smoke       tiny sizes without a GPU, over the kernels on the host: the figures mean nothing
  --programs DIR    folder of kaon-gpu-check, kaonctl and the servers (default: bin beside this script, or the build)
  --write PAGE      also writes the table into PAGE, such as docs/gpu-verification.md
DIR/table.md has the table, DIR/results.jsonl every figure, DIR/SECTION.log what a section printed. The exit status is 1
if a check failed or a figure is below its floor.
TEXT
}

# Seconds that a section may take at most.
limit_of() {
  case "$1" in
    probe) echo 40 ;;
    twins | determinism) echo 60 ;;
    conformance | products | bench) echo 100 ;;
    peers) echo 170 ;;
    cluster | sanitizer) echo 120 ;;
    trainer) echo 160 ;;
  esac
}

die() {
  echo "run.sh: $*" >&2
  exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
command_line="tests/gpu/run.sh${*:+ $*}"
out=kaon-gpu-results
budget=540
smoke=
programs=
page=
again=()
wanted=("${SECTIONS[@]}")
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --sections) IFS=, read -ra wanted <<<"${2:?--sections needs names}"; shift ;;
    --again) again+=("${2:?--again needs a section}"); shift ;;
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    --programs) programs=$(cd "${2:?--programs needs a folder}" && pwd) || exit 2; shift ;;
    --write) page=${2:?--write needs a page}; shift ;;
    --cpu-smoke) smoke=1 ;;
    *) die "unknown option $1; see --help" ;;
  esac
  shift
done
for name in "${wanted[@]}" ${again[@]+"${again[@]}"}; do
  [ -n "$(limit_of "$name")" ] || die "no section is called $name; there are ${SECTIONS[*]}"
done
[[ $budget =~ ^[1-9][0-9]*$ ]] || die "--budget is $budget, must be a number of seconds"
command -v python3 >/dev/null || die "python3 is missing: it runs the PyTorch peers and makes the table"
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
[ -z "$page" ] || page=$(realpath "$page")

# In a bundle the programs are beside this script. In the repository Bazel built them, and make the plugin.
root=$(cd "$here/../.." && pwd)
if [ -z "$programs" ]; then
  programs=$here/bin
  if [ ! -d "$programs" ]; then
    programs=$root/.bazel/bin
    export LD_LIBRARY_PATH=$root/build/cuda:$programs/kernels/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
fi
# program NAME: prints its path, wherever it is below the folder of programs.
program() {
  local path
  for path in "$programs/$1" "$root/build/cuda/$1" "$programs"/{server/coordinator,server/shard,server/admin_cli,client/train,tests/gpu,tests/benchmark}/"$1"; do
    [ ! -x "$path" ] || { echo "$path"; return; }
  done
  return 1
}
check_program=kaon-gpu-check${smoke:+-on-host}

# cuda_libraries: prints the folder of the newest cuBLASLt of CUDA 13: the toolkit's or that of torch's wheels.
cuda_libraries() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda-13*/lib64 /usr/local/cuda-13*/targets/*/lib \
    $(python3 -c '
import glob, site, sys
for root in sys.path + site.getsitepackages():
    print(*glob.glob(root + "/nvidia/*/lib"))' 2>/dev/null) /usr/lib/x86_64-linux-gnu; do
    [ ! -e "$folder/libcublasLt.so.13" ] || { echo "$folder"; return; }
  done
}

# skip SECTION NAME REASON: writes why there is no figure.
skip() {
  printf '{"section": "%s", "name": "%s", "skipped": "%s"}\n' "$1" "$2" "$(tr -d '"\\\n' <<<"$3")"
}

# checked SECTION NAME COMMAND...: a check that passes if the command does.
checked() {
  local section=$1 name=$2 ok=false status=0
  shift 2
  "$@" >&2 || status=$?
  [ $status -ne 0 ] || ok=true
  printf '{"section": "%s", "name": "%s", "ok": %s, "detail": "exit status %s"}\n' "$section" "$name" $ok $status
}

# check_section NAME: one section of the check program. Exit status 1 is a failed check, which its line tells.
check_section() {
  local check status=0
  check=$(program "$check_program") || { skip "$1" "" "$check_program was not built"; return; }
  "$check" "$1" ${smoke:+--small} || status=$?
  [ $status -le 1 ] || return $status
}

section_conformance() {
  check_section conformance || return
  local kaonctl
  if [ -n "$smoke" ]; then
    skip conformance numerics "there is no GPU"
  elif kaonctl=$(program kaonctl); then
    checked conformance numerics "$kaonctl" verify-numerics --backend cuda
  else
    skip conformance numerics "kaonctl was not built"
  fi
}

section_sanitizer() {
  local tool sanitizer check
  sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null)
  if [ -n "$smoke" ] || [ -z "$sanitizer" ]; then
    skip sanitizer "" "compute-sanitizer is not on this machine"
    return
  fi
  check=$(program "$check_program") || { skip sanitizer "" "$check_program was not built"; return; }
  # The tools slow kernels down.
  export KAON_CUDA_DEADLINE_SECONDS=100
  for tool in memcheck racecheck; do
    checked sanitizer "$tool" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 \
      "$check" conformance --small
  done
}

section_peers() { python3 "$here/peers.py" ${smoke:+--cpu-smoke}; }

# with_servers SCRIPT: runs a program that starts servers, in a directory for their files.
with_servers() {
  local directory device=cuda:0
  [ -z "$smoke" ] || device=cuda_on_host:0
  directory=$(mktemp -d "${TMPDIR:-/tmp}/kaon-gpu-cluster.XXXXXX")
  python3 "$here/$1" --device $device --directory "$directory" --programs "$programs" ${smoke:+--small}
  local status=$?
  rm -rf "$directory"
  return $status
}

run_section() {
  case "$1" in
    conformance | sanitizer | peers) "section_$1" ;;
    cluster | trainer) with_servers "$1.py" ;;
    *) check_section "$1" ;;
  esac
}

# A section runs in a process of its own, so that its time limit ends everything that it started.
if [ -n "${KAON_GPU_SECTION:-}" ]; then
  run_section "$KAON_GPU_SECTION"
  exit
fi

# build_check: compiles the check program and the plugin if the bundle has none and this host has a CUDA toolkit.
build_check() {
  local home
  [ -z "$smoke" ] && [ -d "$here/source" ] && ! program kaon-gpu-check >/dev/null || return 0
  home=$(bash "$here/source/deploy/detect_cuda.sh") || return 0
  timeout 240 make -C "$here/source/tests/gpu" -j "$(nproc)" "OUT=$here/source/build" "CUDA_HOME=$home" CUDA_ARCHS=90a \
    "CPPFLAGS=-I$here/source/include" "LDFLAGS=-L$here/source/lib" >"$out/build.log" 2>&1 || { tail -n 5 "$out/build.log"; return 0; }
  mkdir -p "$here/programs" && cp "$here/source/build/kaon-gpu-check" "$here/programs/"
  cp "$here/source/build/libkaon_cuda.so" "$here/lib/"
  ln -sf kaonctl "$here/bin/kaon-gpu-check"
}

# facts: writes the line that describes machine, commit and command.
facts() {
  python3 - "$here" "$command_line" "$smoke" >"$out/facts.jsonl" <<'PYTHON'
import json, os, subprocess, sys, time
def said(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=20).stdout.decode().strip()
    except (OSError, subprocess.SubprocessError):
        return ""
here, command, smoke = sys.argv[1:]
facts = {"section": "facts", "command": command, "date": time.strftime("%Y-%m-%d")}
card = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader", "--id=0").split(", ")
facts["card"], facts["driver"] = (card[0], card[1]) if len(card) == 3 else ("none", "none")
if os.path.exists(here + "/COMMIT"):
    facts["commit"] = open(here + "/COMMIT", encoding="utf-8").read().strip()
else:
    facts["commit"] = said("git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12") or "unknown"
nvcc = said("nvcc", "--version")
facts["CUDA"] = nvcc[nvcc.find("release ") + 8:].split(",")[0] if "release " in nvcc else "no toolkit"
if smoke:
    facts["smoke"] = "figures of --cpu-smoke mean nothing"
print(json.dumps(facts))
PYTHON
}

# A wedged device ends a program with the reason before the time limit of the section does.
export KAON_CUDA_DEADLINE_SECONDS=${KAON_CUDA_DEADLINE_SECONDS:-20}
export KAON_CUDA_LIBS
KAON_CUDA_LIBS=$(cuda_libraries)
[ -n "$smoke" ] || [ -n "$KAON_CUDA_LIBS" ] ||
  echo "run.sh: found no libcublasLt.so.13 in the CUDA toolkit or in torch's wheels; set CUDA_HOME" >&2
facts
start=$SECONDS
build_check
for name in "${wanted[@]}"; do
  [[ " ${again[*]-} " != *" $name "* ]] || rm -f "$out/$name.done"
  if [ -e "$out/$name.done" ]; then
    echo "$name: done before"
    continue
  fi
  left=$((budget - (SECONDS - start)))
  limit=$(limit_of "$name")
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -le 0 ]; then
    # Figures of an earlier run that was cut stay.
    [ -s "$out/$name.jsonl" ] || skip "$name" "" "no time was left" >"$out/$name.jsonl"
    echo "$name: no time is left"
    continue
  fi
  rm -f "$out/$name.failed" "$out/$name.jsonl"
  begin=$SECONDS
  KAON_GPU_SECTION=$name timeout --kill-after=5 "$limit" bash "$0" --out "$out" --programs "$programs" ${smoke:+--cpu-smoke} \
    >"$out/$name.jsonl" 2>"$out/$name.log" </dev/null
  status=$?
  if [ $status -eq 0 ]; then
    touch "$out/$name.done"
    echo "$name: done in $((SECONDS - begin)) s"
  else
    reason="exit status $status"
    [ $status -ne 124 ] && [ $status -ne 137 ] || reason="cut after $limit s"
    echo "$reason" >"$out/$name.failed"
    echo "$name: $reason"
    tail -n 5 "$out/$name.log"
  fi
done
python3 "$here/report.py" "$out" ${page:+--write "$page"}
