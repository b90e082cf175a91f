#!/bin/bash
# libkaon.so exports what abi.txt lists, and nothing else; the structs of the C API have the sizes and offsets there. Its
# functions have the prototypes of prototypes.txt. A release 0.X may change them: then ABI in
# client/python/kaon/_library.py changes as well.
set -euo pipefail

recorded=tests/client/c/abi.txt
{
  nm -D --defined-only deploy/library/libkaon.so | awk '{ print $3 }' | LC_ALL=C sort
  tests/client/c/abi_layout
} >"$TEST_TMPDIR/abi"
# Every struct of the header is printed.
for name in $(sed -nE 's/^typedef struct (\w+) \{$/\1/p' client/kaon/kaon_types.h); do
  grep -q "^$name " "$TEST_TMPDIR/abi" || { echo "FAILED: abi_layout.c does not print $name"; exit 1; }
done
if ! diff -u "$recorded" "$TEST_TMPDIR/abi"; then
  echo "FAILED: the C API is not the recorded one. If that is wanted, copy the + lines to $recorded"
  exit 1
fi
prototypes=tests/client/c/prototypes.txt
# Without comments, preprocessor lines and the braces of extern "C": one declaration a line.
sed -e 's@//.*@@' -e '/^#/d' -e 's/^extern "C" {//' client/kaon/kaon.h | tr -s ' \n' ' ' |
  sed -e 's/; */;\n/g' -e 's/^ *//' | sed -n '/;$/p' >"$TEST_TMPDIR/prototypes"
# So many as there are symbols: none was missed.
[ "$(wc -l <"$TEST_TMPDIR/prototypes")" -eq "$(grep -vc ' ' "$recorded")" ] ||
  { echo "FAILED: $(wc -l <"$TEST_TMPDIR/prototypes") prototypes in kaon.h"; exit 1; }
if ! diff -u "$prototypes" "$TEST_TMPDIR/prototypes"; then
  echo "FAILED: kaon.h has other prototypes. If that is wanted, copy the + lines to $prototypes"
  exit 1
fi
[ "$(grep -c '^kaon_.*_free$' "$recorded")" -ge 6 ] || { echo "FAILED: $recorded is no list"; exit 1; }
echo "all passed"
