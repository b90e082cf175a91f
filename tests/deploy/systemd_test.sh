#!/bin/bash
# systemd accepts the units of deploy/systemd, and finds a seeded fault.
set -euo pipefail
source "$TEST_SRCDIR/kaon/tests/skipped.sh"
command -v systemd-analyze >/dev/null || skipped "systemd-analyze is missing: install the package systemd"
work=$TEST_TMPDIR/units
mkdir -p "$work"
# systemd looks for the programs, which are not installed here.
printf '#!/bin/sh\n' >"$work/program"
chmod +x "$work/program"
for unit in "$TEST_SRCDIR"/kaon/deploy/systemd/*.service; do
  sed "s|^ExecStart=/usr/bin/kaon-[a-z]*|ExecStart=$work/program|" "$unit" >"$work/$(basename "$unit")"
done

# complaints UNIT...: what systemd says about them; it does not end with an error for each of its warnings.
complaints() { systemd-analyze verify --recursive-errors=no --man=no "$@" 2>&1 | grep -F -e "$work" -e kaon- || true; }

found=$(complaints "$work"/kaon-*.service)
[ -z "$found" ] || { echo "FAILED: $found"; exit 1; }
sed 's/^StateDirectory=/StateDirectry=/' "$work/kaon-shard.service" >"$work/kaon-wrong.service"
found=$(complaints "$work/kaon-wrong.service")
[[ $found = *StateDirectry* ]] || { echo "FAILED: a misspelt setting was not found: $found"; exit 1; }
