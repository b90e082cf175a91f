// The conformance suite of ShardChannel. A test instantiates ShardChannelConformance with a
// function that makes the channel (MakeShardChannel).
#ifndef KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_H_

// IWYU pragma: begin_exports
#include "tests/conformance/shard_channel_conformance_pull.h"
#include "tests/conformance/shard_channel_conformance_push.h"
// IWYU pragma: end_exports

#endif  // KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_H_
