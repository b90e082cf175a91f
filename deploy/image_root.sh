#!/bin/bash
# Lays out the root file system of the image (deploy/Dockerfile): the programs and every library that they load.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: deploy/image_root.sh DIR

Runs inside an image build. Writes DIR, the root file system, and DIR-owned, the folders that belong to user 65532.
Takes bin/kaon-shard ..., and lib/libkaon_cuda.so with CUDA=1, from the current folder if bin/ is there; builds them by
Bazel otherwise, with the commit KAON_REVISION in their versions. CUDA=1 adds the CUDA backend and cuBLASLt.
TEXT
}

case "${1:-}" in
  --help | -h) usage; exit 0 ;;
  "" | -*) usage >&2; exit 2 ;;
esac
root=$1
programs=(server/shard/kaon-shard server/coordinator/kaon-coordinator server/admin_cli/kaonctl client/train/kaon-train)
cuda_home=
[ "${CUDA:-0}" != 1 ] || cuda_home=$(deploy/detect_cuda.sh)

# What the programs load; a build installs the same by the -dev packages.
runtime_packages=(libgrpc++1.51 libprotobuf32 libdnnl2 libre2-9 libgoogle-glog0v6 libisal2 liburing2 libssl3 libgomp1
  libprometheus-cpp-core1.0 libmicrohttpd12)

install -d "$root/usr/bin" "$root/usr/lib/x86_64-linux-gnu" "$root/etc" "$root/tmp"
if [ -d bin ]; then
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${runtime_packages[@]}"
  for program in "${programs[@]}"; do install -m 0755 "bin/$(basename "$program")" "$root/usr/bin/"; done
  [ -z "$cuda_home" ] || install -m 0644 lib/libkaon_cuda.so "$root/usr/lib/x86_64-linux-gnu/"
else
  deploy/install_packages.sh
  options=(--config=opt "--disk_cache=$(deploy/disk_cache.sh)" "--define=kaon_commit=$(deploy/commit.sh)")
  targets=("${programs[@]}")
  if [ -n "$cuda_home" ]; then
    options+=(--config=cuda)
    targets+=(kernels/cuda/libkaon_cuda.so)
    export CUDA_HOME=$cuda_home
  fi
  bazel build "${options[@]}" "${targets[@]}"
  for target in "${targets[@]}"; do
    case "$target" in
      *.so) install -s -m 0644 ".bazel/bin/$target" "$root/usr/lib/x86_64-linux-gnu/" ;;
      *) install -s -m 0755 ".bazel/bin/$target" "$root/usr/bin/" ;;
    esac
  done
  bazel shutdown
fi

# Libraries, where the loader looks without a cache. The driver's own come from the machine that runs the image.
for file in "$root"/usr/bin/* "$root"/usr/lib/x86_64-linux-gnu/*.so; do
  [ -e "$file" ] || continue
  LD_LIBRARY_PATH=${cuda_home:+$cuda_home/lib64} ldd "$file"
done | awk '/not found/ && $1 !~ /^libcuda\.so/ { print "image_root.sh: " $1 " is missing" > "/dev/stderr"; failed = 1 }
            $2 == "=>" && $3 ~ /^\// { print $3 } END { exit failed }' | sort -u >/tmp/libraries
xargs -r -a /tmp/libraries install -m 0644 -t "$root/usr/lib/x86_64-linux-gnu"
ln -s usr/lib "$root/lib"
install -d "$root/lib64"
install -m 0755 /lib64/ld-linux-x86-64.so.2 "$root/lib64/"

# Names that the C library and gRPC look up; the texts that kaon-train learns from; licences.
echo 'kaon:x:65532:65532:Kaon:/var/lib/kaon:/sbin/nologin' >"$root/etc/passwd"
echo 'kaon:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
install -d "$root/usr/share/common-licenses" "$root/usr/share/doc/kaon"
cp -L /usr/share/common-licenses/* "$root/usr/share/common-licenses/"
cp LICENSE "$root/usr/share/doc/kaon/"
chmod 1777 "$root/tmp"
install -d -m 0755 "$root-owned/etc/kaon/tls" "$root-owned/var/lib/kaon" "$root-owned/checkpoints"
