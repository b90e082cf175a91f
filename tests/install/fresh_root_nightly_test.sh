#!/bin/bash
# Runs the packages in a fresh root file system of Debian 12, which has none of the libraries of Kaon. First the archive,
# unpacked in a folder that it was not made in, then the Debian package, which is removed in the end. Each starts a
# cluster, trains with kaon-train, builds a trainer and trains with it. The wheel, installed by pip, starts a cluster and
# trains. Needs root, mmdebstrap and Debian's mirror.
set -euo pipefail

# Bazel gives a test no folder of chroot.
PATH+=:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || { echo "FAILED: only root may make a root file system"; exit 1; }
command -v mmdebstrap >/dev/null || { echo "FAILED: no mmdebstrap: deploy/install_packages.sh --package"; exit 1; }

# What is mounted here is gone when the test ends, however it ends.
if [ -z "${KAON_IN_NAMESPACE:-}" ]; then
  KAON_IN_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi
work=$TEST_TMPDIR
root=$work/root
# The commit that the build was told.
commit=$1
deploy/package.sh --binaries "$PWD" --output "$work/packages"
# KAON_TEST_ROOT: a tar that mmdebstrap has made before.
if [ -n "${KAON_TEST_ROOT:-}" ]; then
  mkdir -p "$root"
  tar -C "$root" -xf "$KAON_TEST_ROOT"
else
  mmdebstrap --quiet --variant=minbase bookworm "$root"
fi
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"

fail() {
  echo "FAILED: $*"
  exit 1
}
# inside COMMAND...: runs it in the fresh root.
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
SMALL=(--hidden 48 --embedding 8 --batch-size 96 --report-every 1 --steps 5)

# train_cluster PREFIX: starts the cluster of an installation, trains with its kaon-train, and compares with a run
# without servers.
train_cluster() {
  local prefix=$1 cluster=/tmp/cluster served alone program
  for program in kaon-coordinator kaon-shard kaonctl kaon-train; do
    [[ $(inside "$prefix/bin/$program" --version) = "$program $version (commit $commit, opt build)"* ]] ||
      fail "$program --version: $(inside "$prefix/bin/$program" --version)"
  done
  inside "$prefix/share/kaon/deploy/local_cluster.sh" start $cluster --shards 2 --workers 1
  served=$(inside "$prefix/bin/kaon-train" --connect "127.0.0.1:$(<"$root$cluster/coordinator.port")" \
    --tls-dir $cluster/tls --workers 1 "${SMALL[@]}" | tail -n 1)
  inside "$prefix/bin/kaonctl" --dir $cluster health
  inside "$prefix/share/kaon/deploy/local_cluster.sh" stop $cluster
  alone=$(inside "$prefix/bin/kaon-train" --local --workers 1 "${SMALL[@]}" | tail -n 1)
  echo "$prefix: trained to $(digest "$served")"
  [ "$(digest "$served")" = "$(digest "$alone")" ] || fail "$prefix: service $served, local $alone"
  link_trainer "$prefix" $cluster
  rm -rf "$root$cluster"
}

# link_trainer PREFIX CLUSTER: builds a trainer where no header of gRPC or Protobuf is, and trains with it.
link_trainer() {
  local prefix=$1 cluster=$2
  inside env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" \
    bash -c 'g++ -std=c++17 -o /tmp/trainer /tmp/trainer.cc $(pkg-config --cflags --libs kaon)'
  inside "$prefix/share/kaon/deploy/local_cluster.sh" start "$cluster" --fresh --shards 2 --workers 1
  inside env LD_LIBRARY_PATH="$prefix/lib" /tmp/trainer "127.0.0.1:$(<"$root$cluster/coordinator.port")" "$cluster/tls"
  inside "$prefix/share/kaon/deploy/local_cluster.sh" stop "$cluster"
}
digest() {
  python3 -c 'import json, sys; print(json.loads(sys.argv[1][len("SUMMARY "):])["weights_digest"])' "$1"
}

version=$(<VERSION)
for file in "$work"/packages/*; do
  # docs/operating.md says about how large they are.
  [ "$(stat -c %s "$file")" -le $((40 << 20)) ] || fail "$file has $(($(stat -c %s "$file") >> 20)) MiB, must have at most 40"
done
! inside dpkg-query -W 'libgrpc*' 2>/dev/null || fail "the fresh root has gRPC"
mkdir "$root/opt/elsewhere"
tar -C "$root/opt/elsewhere" --strip-components 1 -xzf "$work/packages/kaon-$version-linux-x86_64.tar.gz"
inside /opt/elsewhere/bin/kaon-train --local --corpus-dir /opt/elsewhere/share/kaon/corpus "${SMALL[@]}" | tail -n 1
# install PACKAGE...: with what it depends on and nothing else.
install() {
  inside env DEBIAN_FRONTEND=noninteractive apt-get install -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" \
    >"$work/log" 2>&1 || { cat "$work/log"; fail "$* cannot be installed"; }
}
# The commands of README.md, as they are there, to a trained job within fifteen minutes.
cp "$work/packages/kaon-$version-linux-x86_64.tar.gz" "$root/root/"
awk '/^```sh archive$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$root/root/readme"
[ "$(wc -l <"$root/root/readme")" -ge 7 ] || fail "README.md has no commands for the archive"
SECONDS=0
inside bash -c 'cd && DEBIAN_FRONTEND=noninteractive bash -euo pipefail readme' >"$work/log" 2>&1 || { cat "$work/log"; fail "README.md"; }
grep -q '^SUMMARY {' "$work/log" || { cat "$work/log"; fail "the commands of README.md do not train"; }
echo "README.md: trained on two shards after $SECONDS s"
[ $SECONDS -le 900 ] || fail "the commands of README.md took $SECONDS s, must take at most 900"
rm -rf "$root/root/kaon-$version-linux-x86_64"

# What local_cluster.sh needs, and a compiler: the package recommends and suggests these.
install openssl procps g++ libc6-dev pkg-config
cp tests/install/consumers/trainer.{cc,py} "$root/tmp/"
train_cluster /opt/elsewhere
rm -rf "$root/opt/elsewhere"

# The wheel alone is enough for a cluster of its own.
install python3-numpy python3-pip
cp "$work"/packages/kaon-*.whl "$root/tmp/"
inside bash -c 'pip install --quiet --no-index --no-deps --root-user-action ignore --target /opt/wheel /tmp/kaon-*.whl'
inside env PYTHONPATH=/opt/wheel python3 /tmp/trainer.py || fail "the wheel does not train"
rm -rf "$root/opt/wheel"

cp "$work"/packages/kaon_*.deb "$root/kaon.deb"
install /kaon.deb
inside dpkg --verify kaon
# Units, samples and the user are there. Nothing is enabled, and no server finds a configuration.
for file in lib/systemd/system/kaon-{shard,coordinator}.service lib/sysusers.d/kaon.conf share/bash-completion/completions/kaonctl \
  share/zsh/vendor-completions/_kaonctl share/doc/kaon/copyright share/doc/kaon/examples/{shard,coordinator}.textproto; do
  [ -s "$root/usr/$file" ] || fail "the package lacks /usr/$file"
done
[[ $(inside getent passwd kaon) = *:/var/lib/kaon:/usr/sbin/nologin ]] || fail "user kaon: $(inside getent passwd kaon)"
owner=$(inside stat -c %U:%G:%a /var/lib/kaon)
[ "$owner" = kaon:kaon:700 ] || fail "/var/lib/kaon is $owner"
enabled=$(find "$root/etc/systemd" "$root/etc/kaon" \( -type l -o -type f \) -iname '*kaon*' 2>/dev/null) || true
[ -z "$enabled" ] && [ -z "$(ls "$root/etc/kaon")" ] || fail "the package enables or configures: $enabled $(ls "$root/etc/kaon")"
[[ $(inside ldconfig -p) == *libkaon_client.so* ]] || fail "the loader does not know libkaon_client.so"
train_cluster /usr
# As after `systemctl enable`.
inside mkdir -p /etc/systemd/system/multi-user.target.wants
inside ln -s /usr/lib/systemd/system/kaon-shard.service /etc/systemd/system/multi-user.target.wants/
inside dpkg --purge kaon
rest=$(find "$root/usr" "$root/etc" "$root/var/lib" -iname '*kaon*')
[ -z "$rest" ] || fail "the removed package leaves $rest"
echo "all passed"
