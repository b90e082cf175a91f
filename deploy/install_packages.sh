#!/bin/bash
# Installs the Debian 12 packages that Kaon is built and run with. Does nothing when they are all there.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/install_packages.sh [--test] [--package] [--schemas] [--sanitizers] [--torch] [--containers]
                                  [--monitor] [--wheel] [--list]

  --test         also what the tests need
  --package      also what deploy/package.sh and its test need
  --schemas      also pip, which fetches the schemas of the Kubernetes API for a nightly test
  --sanitizers   also what tests/nightly.sh needs: clang, its run-time libraries, clang-format
  --torch        also what the benchmark step_vs_torch compares with: python3-torch (--test has it)
  --containers   also what deploy/container_smoke.sh needs where docker is not
  --monitor      also what the nightly suite monitor needs: prometheus, chromium
  --wheel        also what the nightly suite wheel makes virtual environments with: python3-venv
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
  liburing-dev libssl-dev libeigen3-dev libcli11-dev nlohmann-json3-dev
  prometheus-cpp-dev libmicrohttpd-dev
  # Run: certificates, the licence texts that kaon-train learns from, the scripts themselves.
  openssl base-files ca-certificates procps python3
)
list_only=
for argument in "$@"; do
  case "$argument" in
    --help | -h) usage; exit 0 ;;
    --test)
      packages+=(libgtest-dev libgmock-dev git strace libfaketime cmake pkg-config iproute2 python3-numpy python3-yaml zsh)
      packages+=(python3-torch libtorch-dev)
      command -v kubectl >/dev/null || packages+=(kubernetes-client)
      ;;
    --package) packages+=(dpkg-dev patchelf mmdebstrap) ;;
    --schemas) packages+=(python3-pip) ;;
    --sanitizers) packages+=(clang-14 libclang-rt-14-dev llvm-14 clang-format-14) ;;
    --torch) packages+=(python3-torch) ;;
    --containers) packages+=(podman podman-compose runc netavark aardvark-dns iptables mmdebstrap) ;;
    --monitor) packages+=(prometheus chromium) ;;
    --wheel) packages+=(python3-venv) ;;
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
# shellcheck source=deploy/progress.sh
source "$(dirname "$0")/progress.sh"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints a progress line for each package that apt-get has fetched, unpacked or set up.
count_steps() {
  local line steps=0 all=0
  while IFS= read -r line; do
    if [[ $line =~ ^([0-9]+)\ upgraded,\ ([0-9]+)\ newly ]]; then
      all=$((3 * (BASH_REMATCH[1] + BASH_REMATCH[2])))
    elif [[ $all -gt 0 && $line =~ ^(Get:|Unpacking |Setting up ) ]]; then
      steps=$((steps + 1))
      echo "[$steps / $all] $line"
    fi
  done
}

# apt_get ARGUMENT...: apt-get as root. What it prints goes to the log.
apt_get() {
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 "$@" 2>&1 </dev/null |
    tee -a "$log" | count_steps | show_progress "installing packages"
}
install() {
  apt_get install --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 "${missing[@]}"
}

# The lists of a long-lived machine may be old: they are refreshed only if the first try finds something missing.
if compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null && install; then
  exit 0
fi
: >"$log"
if ! { apt_get update && install; }; then
  tail -n 40 "$log" >&2
  echo "install_packages.sh: apt-get failed; its last lines are above" >&2
  exit 1
fi
