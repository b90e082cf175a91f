#include "client/transport/grpc_shard_channel.h"

#include <gtest/gtest.h>

#include "tests/conformance/shard_channel_conformance.h"

namespace kaon::client {
namespace {

INSTANTIATE_TEST_SUITE_P(Grpc, ShardChannelConformance,
                         testing::Values([](std::shared_ptr<grpc::Channel> connection,
                                            std::shared_ptr<CallTracker> tracker,
                                            std::shared_ptr<TransferCounters>,
                                            kernels::FakeFabric&) {
                           return CreateGrpcShardChannel(std::move(connection), std::move(tracker));
                         }));

}  // namespace
}  // namespace kaon::client
