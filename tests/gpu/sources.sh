#!/bin/bash
# Copies what tests/gpu/Makefile needs into a folder: our sources, and the headers of Debian's libraries that they include.
set -euo pipefail

[ $# -eq 1 ] || { echo "Usage: tests/gpu/sources.sh DIR" >&2; exit 2; }
to=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
mkdir -p "$to/lib"

find kernels tests/gpu \( -name "*.cc" -o -name "*.h" -o -name "*.cu" -o -name Makefile \) -exec cp --parents -t "$to" {} +
cp --parents -t "$to" deploy/detect_cuda.sh

find kernels tests/gpu -maxdepth 2 -name '*.cc' ! -path '*/cuda/*' |
  xargs -I{} g++ -std=c++20 -I. '-DKAON_CHECKED_BACKEND=""' -M {} |
  grep -oE '/usr/include/(absl|glog|gflags|oneapi|dnnl)[^ ]*' | sort -u | while read -r header; do
  install -D -m 644 "$header" "$to/include/${header#/usr/include/}"
done
