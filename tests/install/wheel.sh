#!/bin/bash
# Makes the wheel, asks auditwheel what it needs of a host, and trains with it in fresh virtual environments beside
# pip's newest torch and Debian's, imported before Kaon's library and after. The suite `wheel` of tests/nightly.sh.
# Needs root, and mirrors of Debian and PyPI.
#   KAON_BINARIES        pack the files of this bazel-bin instead of building
#   KAON_TORCH_PACKAGES  take pip's torch from this site-packages folder instead of fetching 3 GB
set -euo pipefail

# What is mounted and started here is gone when the script ends, however it ends.
if [ -z "${KAON_IN_NAMESPACE:-}" ]; then
  KAON_IN_NAMESPACE=1 exec unshare --mount-proc --pid --fork --kill-child "$0" "$@"
fi
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/kaon-wheel.XXXXXX")
root=$work/root
trap 'umount "$root/dev/shm" "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
passed=0
checks=0

# check WHAT COMMAND...
check() {
  local what=$1
  checks=$((checks + 1))
  if "${@:2}"; then passed=$((passed + 1)); else echo "FAILED: $what"; fi
}

audit() {
  local said tag
  said=$("$work/auditwheel/bin/auditwheel" show "$wheel" | tr -s '\n ' ' ')
  tag=$(grep -oE 'following platform tag: "[^"]*"' <<<"$said")
  echo "auditwheel: $tag"
  [[ $tag =~ \"manylinux_2_([0-9]+)_x86_64\"$ ]] && [ "${BASH_REMATCH[1]}" -le 36 ]
}

deploy/package.sh --output "$work/packages" ${KAON_BINARIES:+--binaries "$KAON_BINARIES"}
wheel=$(echo "$work"/packages/kaon-*-manylinux_2_36_x86_64.whl)
# Python would find the checkout and the programs that these name.
unset KAON_BINARIES KAON_LIBRARY KAON_PREFIX KAON_ENDPOINTS KAON_DIR PYTHONPATH

/usr/bin/python3 -m venv "$work/auditwheel"
"$work/auditwheel/bin/pip" install -q auditwheel==6.8.2
check "auditwheel finds that the wheel needs more than its name says" audit

/usr/bin/python3 -m venv "$work/pip"
if [ -n "${KAON_TORCH_PACKAGES:-}" ]; then
  "$work/pip/bin/pip" install -q --no-index --no-deps "$wheel"
  echo "$KAON_TORCH_PACKAGES" >"$(echo "$work"/pip/lib/python3.*/site-packages)/torch.pth"
else
  "$work/pip/bin/pip" install -q "${wheel}[torch]"
fi
check "the command kaonctl" "$work/pip/bin/kaonctl" --version
cp tests/install/consumers/torch_trainer.py "$work/"
for order in first last; do
  check "pip's torch, imported $order" "$work/pip/bin/python" "$work/torch_trainer.py" "$order"
done

# In a fresh root: nothing else of this machine may help.
mmdebstrap --quiet --variant=minbase --include=python3-torch,python3-numpy,python3-venv,openssl,procps bookworm "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
cp "$wheel" "$work/torch_trainer.py" "$root/tmp/"
inside python3 -m venv --system-site-packages /tmp/venv
inside /tmp/venv/bin/pip install -q --no-index --no-deps "/tmp/${wheel##*/}"
for order in first last; do
  check "Debian's torch, imported $order" inside /tmp/venv/bin/python /tmp/torch_trainer.py "$order"
done

echo "$passed of $checks checks passed"
[ "$passed" -eq "$checks" ]
