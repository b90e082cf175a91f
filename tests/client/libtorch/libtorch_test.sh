#!/bin/bash
# Compiles the libtorch adapter as a user does, and trains with it. KAON_LIBTORCH names another libtorch than Debian's,
# such as site-packages/torch of pip's.
source tests/integration/real_cluster.sh

if [ -n "${KAON_LIBTORCH:-}" ]; then
  # Its headers need C++20 since 2.12.
  flags=(-std=c++20 -isystem "$KAON_LIBTORCH/include" -isystem "$KAON_LIBTORCH/include/torch/csrc/api/include"
    -L "$KAON_LIBTORCH/lib" "-Wl,-rpath,$KAON_LIBTORCH/lib")
else
  flags=(-std=c++17 -isystem /usr/include/torch/csrc/api/include)
fi
mkdir -p "$TEST_TMPDIR/include/kaon"
cp client/kaon/*.h client/libtorch/torch.h "$TEST_TMPDIR/include/kaon/"
library=$PWD/deploy/library
# The loader looks for the soname.
ln -s "$library/libkaon_client.so" "$TEST_TMPDIR/$(objdump -p "$library/libkaon_client.so" | awk '/SONAME/ { print $2 }')"
# Its headers are large: both files are one unit, so that they are parsed once.
printf '#include "client/libtorch/torch.cc"\n#include "tests/client/libtorch/torch_test.cc"\n' >"$TEST_TMPDIR/both.cc"
g++ "${flags[@]}" -O0 -I "$TEST_TMPDIR/include" -I . "$TEST_TMPDIR/both.cc" \
  "$library/libkaon_client.so" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 "-Wl,-rpath,$TEST_TMPDIR" \
  -o "$TEST_TMPDIR/torch_test"
export KAON_CHECKPOINT_DIR=$TEST_TMPDIR/checkpoints KAONCTL
mkdir -m 700 "$KAON_CHECKPOINT_DIR"
start 1 any
KAON_DIR=$DIR KAON_RANK=0 "$TEST_TMPDIR/torch_test" || fail "torch_test"
stop
finish
