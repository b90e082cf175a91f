#!/bin/bash
# Prints the commit that the programs name in --version: 12 digits, "-dirty" after them if tracked files differ from it.
# Prints "unknown" outside of a Git checkout. REVISION replaces it where a build has no checkout (deploy/Dockerfile).
set -euo pipefail
cd "$(dirname "$0")"
if [ -n "${REVISION:-}" ]; then
  echo "$REVISION"
else
  git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown
fi
