#!/bin/sh
# Runs a test whose shards keep their tensors in memory that the host cannot touch (ShardMemory).
KAON_TEST_MEMORY=device exec "$1"
