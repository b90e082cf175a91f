#!/bin/bash
# What kaonctl does without a cluster: versions, exit statuses, errors as JSON, confirmation, and completion in a real
# shell.
set -uo pipefail

KAONCTL=$PWD/server/admin_cli/kaonctl
NOBODY=(--endpoints 127.0.0.1:1 --timeout 0.5)
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect STATUS WORDS COMMAND...: the command ends with the status and its output contains the words.
expect() {
  local wanted=$1 words=$2 status=0
  shift 2
  "$@" </dev/null >"$TEST_TMPDIR/out" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || fail "$*: exit status $status, expecting $wanted: $(cat "$TEST_TMPDIR/out")"
  grep -qF -- "$words" "$TEST_TMPDIR/out" || fail "$*: no '$words' in $(cat "$TEST_TMPDIR/out")"
}

version=$(cat VERSION)
# The commit that the build was told; nightly suites tell the real one.
commit=$1
for program in client/train/kaon-train server/admin_cli/kaonctl server/coordinator/kaon-coordinator server/shard/kaon-shard; do
  expect 0 "$(basename "$program") $version (commit $commit, " "$PWD/$program" --version
  grep -q '^features: ..*' "$TEST_TMPDIR/out" || fail "$program --version names no feature: $(cat "$TEST_TMPDIR/out")"
done
expect 0 "isa avx512, avx2, scalar" server/shard/kaon-shard --version
expect 0 "\"commit\": \"$commit\"" "$KAONCTL" version -o json
expect 0 "\"version\": \"$version\"" "$KAONCTL" version -o json
expect 0 "cuda_plugin: " "$KAONCTL" version -o yaml
# Output that does not fit on the disk.
expect 1 "DATA_LOSS: the output was not written to its end" bash -c '"$0" version >/dev/full' "$KAONCTL"

expect 4 "UNAVAILABLE: coordinator 127.0.0.1:1" "$KAONCTL" "${NOBODY[@]}" status
expect 4 '"exit_status": 4' "$KAONCTL" "${NOBODY[@]}" status -o json
expect 4 "1 of 1 servers do not serve: shard 127.0.0.1:1" "$KAONCTL" --shard 127.0.0.1:1 --timeout 0.5 health
expect 4 "shard 127.0.0.1:1: " "$KAONCTL" --shard 127.0.0.1:1 --timeout 0.5 status
expect 2 '"exit_status": 2' "$KAONCTL" explode -o json
expect 6 "add --yes" "$KAONCTL" "${NOBODY[@]}" checkpoint restore
expect 6 "would delete checkpoint a; without a terminal, add --yes" "$KAONCTL" "${NOBODY[@]}" checkpoint delete a
expect 4 "UNAVAILABLE" "$KAONCTL" "${NOBODY[@]}" checkpoint delete a --yes

# completes WORDS... EXPECTED: the last of the words is completed to it.
completes() {
  local expected=${*: -1}
  COMP_WORDS=("${@:1:$#-1}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
  _kaonctl
  [[ " ${COMPREPLY[*]} " == *" $expected "* ]] || fail "completion of ${COMP_WORDS[*]}: ${COMPREPLY[*]}"
}
# shellcheck source=/dev/null
source <("$KAONCTL" completion bash)
completes kaonctl stat status
completes kaonctl checkpoint re restore
completes kaonctl checkpoint restore --y --yes
completes kaonctl -o json steps --ph --phases
completes kaonctl steps --time --timeout

# The same in zsh: by `source`, and as the file _kaonctl on fpath. compadd is a stub that prints the words.
mkdir -p "$TEST_TMPDIR/zsh"
"$KAONCTL" completion zsh >"$TEST_TMPDIR/zsh/_kaonctl"
# completes_in_zsh SETUP WORDS... EXPECTED
completes_in_zsh() {
  local setup=$1 expected=${*: -1} found
  found=$(zsh -fc 'compadd() { shift; print -l -- "$@"; }; '"$setup"'; words=("$@") CURRENT=$#; ${_comps[kaonctl]:-_kaonctl}' \
    zsh "${@:2:$#-2}" 2>&1) || true
  grep -qx -e "$expected" <<<"$found" || fail "completion of ${*:2:$#-2} in zsh: $found"
}
for setup in 'compdef() { :; }; source "$TEST_TMPDIR/zsh/_kaonctl"' \
  'fpath=("$TEST_TMPDIR/zsh" $fpath); autoload -Uz compinit; compinit -D -u'; do
  completes_in_zsh "$setup" kaonctl stat status
  completes_in_zsh "$setup" kaonctl checkpoint re restore
  completes_in_zsh "$setup" kaonctl checkpoint restore --y --yes
  completes_in_zsh "$setup" kaonctl -o json steps --ph --phases
done

[ "$failures" -eq 0 ] || exit 1
echo "PASSED"
