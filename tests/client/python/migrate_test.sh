#!/bin/bash
# Moves trainings between torch and Kaon where torch is installed.
set -euo pipefail

# shellcheck source=tests/skipped.sh
source tests/skipped.sh
/usr/bin/python3 -c 'import torch' 2>/dev/null ||
  skipped "torch is not installed for /usr/bin/python3: deploy/install_packages.sh --torch installs Debian's"
exec /usr/bin/python3 tests/client/python/migrate_with_torch.py -v
