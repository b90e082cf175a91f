#!/bin/sh
# Runs a test whose shards keep their parameters on a simulated disk (ShardMemory).
KAON_TEST_MEMORY=nvme exec "$1"
