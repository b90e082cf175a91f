#!/bin/bash
# Says whether this machine can build the CUDA backend, and prints where its toolkit lies. Exit status 0: it can
# (bazel build --config=cuda); 1: it cannot, with the reason on stderr. Nothing of Kaon needs CUDA to build or run.
set -euo pipefail

case "${1:-}" in
  --help | -h) echo "Usage: deploy/detect_cuda.sh   (CUDA_HOME overrides /usr/local/cuda)"; exit 0 ;;
  "") ;;
  *) echo "detect_cuda.sh: unknown option $1; see --help" >&2; exit 2 ;;
esac

home=${CUDA_HOME:-/usr/local/cuda}
if [ ! -x "$home/bin/nvcc" ]; then
  echo "detect_cuda.sh: no nvcc in $home/bin; building for CPU only" >&2
  exit 1
fi
release=$("$home/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
read -r major minor <<<"${release:-0 0}"
if [ "$major" -lt 13 ]; then
  echo "detect_cuda.sh: $home has CUDA $major.$minor, expecting 13.0 or newer; building for CPU only" >&2
  exit 1
fi
for header in cublasLt.h cuda_runtime.h; do
  if [ ! -e "$home/include/$header" ]; then
    echo "detect_cuda.sh: $home/include/$header is missing; building for CPU only" >&2
    exit 1
  fi
done
echo "$home"
