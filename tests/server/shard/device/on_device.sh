#!/bin/sh
# Runs a test whose shards keep their tensors in memory that the host cannot touch (ShardMemory).
# Servers load the backend as device fake:0.
KAON_TEST_MEMORY=device LD_LIBRARY_PATH="$PWD/tests/server/shard/device" exec "$1"
