#!/bin/bash
# Prints the folder of a CUDA toolkit that can build the CUDA backend.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/detect_cuda.sh

Prints the folder of the CUDA toolkit, 13.0 or later: $CUDA_HOME, else /usr/local/cuda, else that of nvcc on PATH.
Otherwise it says on stderr why there is none, with exit status 1.
TEXT
}

case "${1:-}" in
  --help | -h) usage; exit 0 ;;
  "") ;;
  *) echo "detect_cuda.sh: unknown option $1; see --help" >&2; exit 2 ;;
esac

if [ -n "${CUDA_HOME:-}" ]; then
  home=$CUDA_HOME
elif [ -x /usr/local/cuda/bin/nvcc ]; then
  home=/usr/local/cuda
elif nvcc=$(command -v nvcc); then
  home=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
else
  echo "detect_cuda.sh: no CUDA toolkit: CUDA_HOME is not set, and neither /usr/local/cuda nor PATH has nvcc" >&2
  exit 1
fi
for file in bin/nvcc include/cuda_runtime.h include/cublasLt.h lib64/libcudart_static.a lib64/libcublasLt.so; do
  [ -e "$home/$file" ] || { echo "detect_cuda.sh: $home has no $file" >&2; exit 1; }
done
version=$("$home/bin/nvcc" --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1.\2/p')
[ "${version%%.*}" -ge 13 ] || { echo "detect_cuda.sh: $home has CUDA $version, needs 13.0 or later" >&2; exit 1; }
echo "$home"
