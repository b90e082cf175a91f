#!/bin/bash
# Prints the commit that the programs name in --version: 12 digits, "-dirty" after them if tracked files differ from it.
# Prints "unknown" if these sources are not a Git checkout of their own. KAON_REVISION replaces it where a build has no
# checkout (deploy/Dockerfile).
set -euo pipefail
cd "$(dirname "$0")"
if [ -n "${KAON_REVISION:-}" ]; then
  echo "$KAON_REVISION"
elif [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(realpath ..)" ]; then
  git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown
else
  echo unknown
fi
