#!/bin/bash
# deploy/commit.sh names the commit of its checkout, says whether files differ from it, and knows when there is none.
set -euo pipefail
export HOME=$TEST_TMPDIR GIT_CEILING_DIRECTORIES=$TEST_TMPDIR
git=(git -c user.name=t -c user.email=t@example.org)
mkdir -p "$TEST_TMPDIR/sources/deploy"
cp deploy/commit.sh "$TEST_TMPDIR/sources/deploy/"
cd "$TEST_TMPDIR/sources"

# prints EXPECTED [VARIABLE=VALUE]: the script's output.
prints() {
  local found
  found=$(env "${@:2}" deploy/commit.sh)
  [ "$found" = "$1" ] || { echo "FAILED: commit.sh prints '$found', expecting '$1'"; exit 1; }
}
prints unknown
prints 5952d4ab KAON_REVISION=5952d4ab
# A repository around the sources is not theirs.
git init -q "$TEST_TMPDIR"
prints unknown
rm -rf "$TEST_TMPDIR/.git"
git init -q .
"${git[@]}" add .
"${git[@]}" commit -q -m one
"${git[@]}" tag -a -m release v1
commit=$(git rev-parse HEAD)
prints "${commit:0:12}"
touch untracked
prints "${commit:0:12}"
echo '#' >>deploy/commit.sh
prints "${commit:0:12}-dirty"
echo PASSED
