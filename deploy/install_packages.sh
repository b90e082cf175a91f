#!/bin/bash
# Installs the Debian 12 packages that Kaon is built and run with. Does nothing when they are all there.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/install_packages.sh [--test] [--sanitizers] [--torch] [--list]

  --test         also what the tests need
  --sanitizers   also what tests/nightly.sh needs: clang, its run-time libraries, clang-format
  --torch        also what the nightly suite torch compares with: python3-torch
  --list         print the packages and stop
Needs root, or sudo, only if something is missing.
TEXT
}

packages=(
  # Build.
  g++ bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib bazel-platforms
  protobuf-compiler protobuf-compiler-grpc
  # Libraries.
  libgrpc++-dev libprotobuf-dev libabsl-dev libdnnl-dev libre2-dev libgoogle-glog-dev libisal-dev
  libssl-dev libeigen3-dev libcli11-dev nlohmann-json3-dev
  # Run: certificates, the licence texts that kaon-train learns from, the scripts themselves.
  openssl base-files ca-certificates procps python3
)
list_only=
for argument in "$@"; do
  case "$argument" in
    --help | -h) usage; exit 0 ;;
    --test) packages+=(libgtest-dev libgmock-dev git strace libfaketime) ;;
    --sanitizers) packages+=(clang-14 libclang-rt-14-dev llvm-14 clang-format-14) ;;
    --torch) packages+=(python3-torch) ;;
    --list) list_only=1 ;;
    *) echo "install_packages.sh: unknown option $argument; see --help" >&2; exit 2 ;;
  esac
done
if [ -n "$list_only" ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

echo "Installing Debian packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_packages.sh: these packages are missing and neither root nor sudo is here: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
install() {
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "${missing[@]}"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists of a long-lived machine may be old: they are refreshed only if the first try finds something missing.
if compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null && install >"$log" 2>&1; then
  exit 0
fi
if ! { ${as_root[@]+"${as_root[@]}"} apt-get update -q && install; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "install_packages.sh: apt-get failed; its last lines are above" >&2
  exit 1
fi
