#!/bin/bash
# Packs an installation into a Debian package, an archive that runs from any folder, and a Python wheel.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/package.sh [--output DIR] [--binaries BIN]

Builds Kaon and writes into DIR:
  kaon_VERSION_amd64.deb             for Debian 12
  kaon-VERSION-linux-x86_64.tar.gz   for any host with glibc 2.36 or later; carries all other libraries
  kaon-VERSION-py3-none-manylinux_2_36_x86_64.whl
                                     for pip on such a host; carries the servers and these libraries
  --output DIR     where to (default: build)
  --binaries BIN   pack the files of this bazel-bin instead of building
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
output=$root/build
binaries=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --output) output=$(realpath -m "${2:?--output needs a folder}"); shift ;;
    --binaries) binaries=(--binaries "$(realpath "${2:?--binaries needs a folder}")"); shift ;;
    *) echo "package.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

cd "$root"
# shellcheck source=deploy/copy_libraries.sh
source deploy/copy_libraries.sh
deploy/install_packages.sh --package
version=$(<VERSION)
# Equal sources give equal archives.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$output"

# depends FILE...: prints the Debian packages that the files need.
depends() {
  mkdir -p "$work/shlibs/debian"
  printf 'Source: kaon\n\nPackage: kaon\nArchitecture: any\n' >"$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps --warnings=1 -O "$@") | sed -n 's/^shlibs:Depends=//p'
}

# place_for_debian TREE: moves what Debian has in other places than a prefix, and adds what makes the user kaon. No unit
# is enabled or started, and no configuration is put where a server would read it.
place_for_debian() {
  local tree=$1 name
  mkdir -p "$tree"/{DEBIAN,etc/kaon} "$tree"/usr/lib/{systemd/system,sysusers.d} "$tree/usr/share/zsh/vendor-completions"
  mv "$tree/usr/share/doc/kaon/LICENSE" "$tree/usr/share/doc/kaon/copyright"
  mv "$tree/usr/share/zsh/site-functions/_kaonctl" "$tree/usr/share/zsh/vendor-completions/"
  mv "$tree"/usr/share/kaon/systemd/*.service "$tree/usr/lib/systemd/system/"
  mv "$tree/usr/share/kaon/systemd/kaon.sysusers" "$tree/usr/lib/sysusers.d/kaon.conf"
  rmdir "$tree/usr/share/zsh/site-functions" "$tree/usr/share/kaon/systemd"
  for name in postinst prerm postrm; do install -m 755 "deploy/debian/$name" "$tree/DEBIAN/"; done
}

make_debian_package() {
  local tree=$work/debian architecture package
  architecture=$(dpkg --print-architecture)
  package=$output/kaon_${version}_$architecture.deb
  DESTDIR=$tree deploy/install.sh --prefix /usr ${binaries[@]+"${binaries[@]}"}
  place_for_debian "$tree"
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
  echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
  local needs
  needs=$(depends "$tree"/usr/bin/* "$tree"/usr/lib/libkaon{,_client}.so."$version")
  [ -n "$needs" ] || { echo "package.sh: dpkg-shlibdeps found no dependency" >&2; return 1; }
  cat >"$tree/DEBIAN/control" <<TEXT
Package: kaon
Version: $version
Architecture: $architecture
Maintainer: Maintainers of Kaon
Section: science
Priority: optional
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Depends: $needs, procps
Recommends: openssl
Suggests: g++, pkg-config
Description: optimizer-state service for training neural networks
 Shard servers own the weights and the optimizer state. Workers push gradients
 and pull weights. This package has the servers, kaonctl, an example trainer and
 the client library with its headers.
TEXT
  dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null
  echo "$package: $(($(stat -c %s "$package") >> 20)) MiB"
}

# copy_licences LIB DIR: copies the copyright files of the Debian packages that the libraries are from.
copy_licences() {
  local libraries package
  mapfile -t libraries < <(cd "$1" && find . -name '*.so.*' ! -name 'libkaon*' -printf '*-linux-gnu/%f\n')
  mkdir "$2"
  dpkg-query -S "${libraries[@]}" | sed 's/:.*//' | sort -u | while read -r package; do
    cp -L "/usr/share/doc/$package/copyright" "$2/$package"
  done
}

# The wheel has the programs and libraries of the archive.
make_archive_and_wheel() {
  local name=kaon-$version-linux-x86_64 tree archive file
  tree=$work/$name
  archive=$output/$name.tar.gz
  deploy/install.sh --prefix "$tree" ${binaries[@]+"${binaries[@]}"}
  copy_libraries "$tree/lib" "" "$tree"/bin/* "$tree"/lib/libkaon{,_client}.so
  for file in "$tree"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done
  for file in "$tree"/lib/*.so.*; do
    [ -L "$file" ] || patchelf --set-rpath '$ORIGIN' "$file"
  done
  copy_licences "$tree/lib" "$tree/share/doc/kaon/libraries"
  # kaon-train --corpus-dir: hosts other than Debian do not have these texts.
  mkdir "$tree/share/kaon/corpus"
  find /usr/share/common-licenses -maxdepth 1 -type f -exec cp {} "$tree/share/kaon/corpus/" \;
  tar -C "$work" --owner=0 --group=0 --sort=name --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n >"$work/archive"
  mv "$work/archive" "$archive"
  echo "$archive: $(($(stat -c %s "$archive") >> 20)) MiB"
  rm "$tree"/share/doc/kaon/libraries/lib{stdc++6,gcc-s1}
  isolate_libraries "$tree/lib" "$tree"/bin/*
  deploy/wheel.py "$tree" "$output"
}

make_debian_package
make_archive_and_wheel
