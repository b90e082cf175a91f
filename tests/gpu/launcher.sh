#!/bin/sh
# Runs the program of this name in ../programs with the libraries of the bundle and the host's CUDA libraries.
# Containers often find the driver only in LD_LIBRARY_PATH, or in /usr/local/nvidia.
bundle=$(cd "$(dirname "$0")/.." && pwd)
name=$(basename "$0")
LD_LIBRARY_PATH=$bundle/lib${KAON_CUDA_LIBS:+:$KAON_CUDA_LIBS}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:/usr/local/nvidia/lib64
OPENSSL_CONF=$bundle/openssl.cnf
export LD_LIBRARY_PATH OPENSSL_CONF
# The programs need glibc 2.36. An older host, or one without glibc, runs them with the loader of the bundle.
version=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)
if [ "$(printf '%s\n2.36\n' "${version:-0}" | sort -V | head -n 1)" = 2.36 ]; then
  exec "$bundle/programs/$name" "$@"
fi
exec "$bundle/glibc/ld-linux-x86-64.so.2" --library-path "$bundle/glibc:$LD_LIBRARY_PATH" --argv0 "$0" \
  "$bundle/programs/$name" "$@"
