#!/bin/bash
# Prints the directory in which every script of this repository lets Bazel keep what was built (--disk_cache), so that no
# checkout builds what another has. Without HOME, as services are started, it is in the user's home directory all the same.
set -euo pipefail
cache=${XDG_CACHE_HOME:-~/.cache}
echo "$cache/kaon-bazel"
