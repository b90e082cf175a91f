#!/bin/bash
# Packs what a GPU host needs for tests/gpu/run.sh into one archive, which runs from any folder.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/gpu/bundle.sh [--plugin FILE] [--check FILE] [--output FILE]

Builds (opt) and packs build/kaon-gpu-bundle.tar.gz: servers, kaonctl, kaon-train, the push_pull benchmark, the check
program, the CUDA plugin, Debian's shared libraries that they need, the Python package, sources of the check program,
and run.sh.
  --plugin FILE   libkaon_cuda.so (default: build/cuda/libkaon_cuda.so, made with nvcc if it is here)
  --check FILE    kaon-gpu-check (default: build/cuda/kaon-gpu-check, made with nvcc if it is here)
  --output FILE   the archive (default: build/kaon-gpu-bundle.tar.gz)
The host needs x86-64, python3, a driver for CUDA 13 and cuBLASLt 13, from the CUDA toolkit or from torch's wheels. The
section `trainer` also needs torch 2.9 or later with CUDA, and glibc 2.36 or later.
TEXT
}

MAX_BYTES=$((50 << 20))
root=$(cd "$(dirname "$0")/../.." && pwd)
plugin=$root/build/cuda/libkaon_cuda.so
check=$root/build/cuda/kaon-gpu-check
output=$root/build/kaon-gpu-bundle.tar.gz
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --plugin) plugin=$(realpath -m "${2:?--plugin needs a file}"); shift ;;
    --check) check=$(realpath -m "${2:?--check needs a file}"); shift ;;
    --output) output=$(realpath -m "${2:?--output needs a file}"); shift ;;
    *) echo "bundle.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

cd "$root"
# shellcheck source=deploy/copy_libraries.sh
source "$root/deploy/copy_libraries.sh"
"$root/deploy/install_packages.sh" --package
targets=(//server/coordinator:kaon-coordinator //server/shard:kaon-shard //server/admin_cli:kaonctl
  //client/train:kaon-train //tests/benchmark:push_pull //tests/gpu:kaon-gpu-check-on-host)
on_host=//kernels/cuda:libkaon_cuda_on_host.so
bazel build --config=opt "--disk_cache=$(deploy/disk_cache.sh)" --noshow_progress --ui_event_filters=-info \
  "${targets[@]}" $on_host //deploy/library:libkaon.so </dev/null
if home=$(deploy/detect_cuda.sh); then
  make --no-print-directory -j "$(nproc)" -C tests/gpu "OUT=$root/build/cuda" "CUDA_HOME=$home" CUDA_ARCHS=90a
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
bundle=$work/kaon-gpu-bundle
mkdir -p "$bundle"/{bin,programs,lib,glibc,deploy,corpus,source}

# add_program FILE: the program itself, and a launcher in bin/ that finds the libraries.
add_program() {
  local name
  name=$(basename "$1")
  install -m 755 "$1" "$bundle/programs/$name"
  strip --strip-unneeded "$bundle/programs/$name"
  install -m 755 tests/gpu/launcher.sh "$bundle/bin/$name"
}
for target in "${targets[@]}"; do
  path=${target#//}
  add_program ".bazel/bin/${path/://}"
done
add_program "$(command -v openssl)"
install -m 644 .bazel/bin/kernels/cuda/libkaon_cuda_on_host.so "$bundle/lib/"
if [ -e "$check" ]; then
  add_program "$check"
else
  echo "bundle.sh: no $check: the sections that need it are not measured unless the host has nvcc" >&2
fi
if [ -e "$plugin" ]; then
  install -m 644 "$plugin" "$bundle/lib/"
  strip --strip-unneeded "$bundle/lib/$(basename "$plugin")"
else
  echo "bundle.sh: no $plugin: the shards of this bundle have no device" >&2
fi

# The launcher uses glibc/ on hosts with an older C library.
copy_libraries "$bundle/lib" "$bundle/glibc" "$bundle"/programs/* "$bundle"/lib/*.so

# The Python package with its libraries, as in the wheel.
python_lib=$bundle/python/kaon/installation/lib
mkdir -p "$python_lib"
install -m 644 client/python/kaon/*.py "$bundle/python/kaon/"
library=$python_lib/$(patchelf --print-soname .bazel/bin/deploy/library/libkaon.so)
install -m 644 .bazel/bin/deploy/library/libkaon.so "$library"
strip --strip-unneeded "$library"
modules=("$library")
if [ -e "$plugin" ]; then
  # libkaon.so loads it from its own folder, for NCCL.
  modules+=("$python_lib/libkaon_cuda.so")
  install -m 644 "$bundle/lib/$(basename "$plugin")" "${modules[1]}"
fi
copy_libraries "$python_lib" "" "${modules[@]}"
patchelf --set-rpath '$ORIGIN' "$python_lib"/*.so*
isolate_libraries "$python_lib" "${modules[@]:1}"

install -m 755 tests/gpu/{run.sh,report.py,peers.py,cluster.py,trainer.py} docs/examples/train_gpt.py "$bundle/"
install -m 755 deploy/certificates.sh "$bundle/deploy/"
find /usr/share/common-licenses -maxdepth 1 -type f -exec cp {} "$bundle/corpus/" \;
cp /etc/ssl/openssl.cnf "$bundle/"
git describe --always --dirty --abbrev=12 >"$bundle/COMMIT"
tests/gpu/sources.sh "$bundle/source"
for library in "$bundle"/lib/*.so.*; do
  name=$(basename "$library")
  ln -s "../../lib/$name" "$bundle/source/lib/${name%%.so.*}.so"
done

mkdir -p "$(dirname "$output")"
tar -C "$work" --owner=0 --group=0 --sort=name -cf - kaon-gpu-bundle | gzip >"$work/archive"
bytes=$(stat -c %s "$work/archive")
if [ "$bytes" -gt $MAX_BYTES ]; then
  echo "bundle.sh: $output has $bytes bytes, at most $MAX_BYTES are allowed: leave something out" >&2
  exit 1
fi
mv "$work/archive" "$output"
echo "$output: $((bytes >> 20)) MiB; on the GPU host: tar xzf kaon-gpu-bundle.tar.gz && kaon-gpu-bundle/run.sh"
