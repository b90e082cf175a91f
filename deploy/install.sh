#!/bin/bash
# Installs the programs and the client library below a prefix.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/install.sh [--prefix DIR] [--binaries BIN]

Builds Kaon and installs it below DIR, an absolute path:
  bin/                   kaon-coordinator, kaon-shard, kaonctl, kaon-train
  include/kaon/          headers: #include <kaon/client.h>
  lib/                   libkaon_client.so and .a; pkgconfig/kaon.pc; cmake/Kaon: find_package(Kaon), target Kaon::client
                         libkaon.so: the C API of kaon/kaon.h
  share/kaon/            proto/; deploy/local_cluster.sh and certificates.sh; systemd/: units for programs in /usr/bin
  share/kaon/python/     the Python package: pip install it, or name it in PYTHONPATH
  share/doc/kaon/        LICENSE; examples/: sample configurations
  share/                 completions of kaonctl for bash and zsh
The tree may be moved. If DESTDIR is set, the files go below DESTDIR/DIR.
  --prefix DIR     where to (default: /usr/local)
  --binaries BIN   install the files of this bazel-bin instead of building
TEXT
}

die() {
  echo "install.sh: $*" >&2
  exit 2
}

root=$(cd "$(dirname "$0")/.." && pwd)
prefix=/usr/local
bin=
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --prefix) prefix=${2:?--prefix needs a folder}; shift ;;
    --binaries) bin=$(realpath "${2:?--binaries needs a folder}"); shift ;;
    *) die "unknown option $1; see --help" ;;
  esac
  shift
done
[[ $prefix == /* ]] || die "--prefix $prefix is not an absolute path"
to=${DESTDIR:-}$prefix

cd "$root"
programs=(server/coordinator/kaon-coordinator server/shard/kaon-shard server/admin_cli/kaonctl client/train/kaon-train)
libraries=(deploy/library/libkaon.so deploy/library/libkaon_client.so deploy/library/libkaon_client.a deploy/library/kaon_client.options)
if [ -z "$bin" ]; then
  deploy/install_packages.sh
  targets=()
  for file in "${programs[@]}" "${libraries[@]}"; do targets+=("//${file%/*}:${file##*/}"); done
  bazel build --config=opt "--disk_cache=$(deploy/disk_cache.sh)" "--define=kaon_commit=$(deploy/commit.sh)" \
    --noshow_progress --ui_event_filters=-info "${targets[@]}" </dev/null
  bin=$root/.bazel/bin
fi
for file in "${programs[@]}" "${libraries[@]}"; do
  [ -e "$bin/$file" ] || die "$bin/$file is missing: build it first"
done

version=$(<VERSION)
abi=${version%.*}
options=$(<"$bin/deploy/library/kaon_client.options")
mkdir -p "$to"/{bin,include/kaon,lib/pkgconfig,lib/cmake/Kaon,share/doc/kaon/examples} \
  "$to"/share/{bash-completion/completions,zsh/site-functions,kaon/deploy,kaon/systemd,kaon/proto/kaon/v1,kaon/python/kaon} ||
  die "$to cannot be written: choose another --prefix, or run as root"
for file in "${programs[@]}"; do
  install -m 755 -s "$bin/$file" "$to/bin/"
done
for file in libkaon libkaon_client; do
  install -m 644 -s "$bin/deploy/library/$file.so" "$to/lib/$file.so.$version"
  ln -sf "$file.so.$version" "$to/lib/$file.so.$abi"
  ln -sf "$file.so.$abi" "$to/lib/$file.so"
done
install -m 644 "$bin/deploy/library/libkaon_client.a" "$to/lib/"
install -m 644 client/kaon/*.h "$to/include/kaon/"
install -m 644 proto/kaon/v1/*.proto "$to/share/kaon/proto/kaon/v1/"
install -m 644 client/python/pyproject.toml "$to/share/kaon/python/"
install -m 644 client/python/kaon/*.py client/python/kaon/py.typed "$to/share/kaon/python/kaon/"
install -m 755 deploy/local_cluster.sh deploy/certificates.sh "$to/share/kaon/deploy/"
install -m 644 deploy/systemd/* "$to/share/kaon/systemd/"
install -m 644 deploy/config/*.textproto "$to/share/doc/kaon/examples/"
install -d "$to/share/doc/kaon/examples/prometheus"
install -m 644 deploy/prometheus/* "$to/share/doc/kaon/examples/prometheus/"
install -m 644 LICENSE "$to/share/doc/kaon/"
"$to/bin/kaonctl" completion bash >"$to/share/bash-completion/completions/kaonctl"
"$to/bin/kaonctl" completion zsh >"$to/share/zsh/site-functions/_kaonctl"

# fill TEMPLATE FILE
fill() {
  sed -e "s|@VERSION@|$version|g" -e "s|@ABI@|$abi|g" -e "s|@OPTIONS@|$options|g" "deploy/library/$1" >"$2"
  chmod 644 "$2"
}
fill kaon.pc.in "$to/lib/pkgconfig/kaon.pc"
fill KaonConfig.cmake.in "$to/lib/cmake/Kaon/KaonConfig.cmake"
fill KaonConfigVersion.cmake.in "$to/lib/cmake/Kaon/KaonConfigVersion.cmake"
echo "installed Kaon $version in $to"
