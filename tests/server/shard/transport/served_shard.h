// A ShardServer on loopback with plain stubs; the test plays the coordinator. One thread, blocking
// calls with a deadline.
#ifndef KAON_TESTS_SERVER_SHARD_TRANSPORT_SERVED_SHARD_H_
#define KAON_TESTS_SERVER_SHARD_TRANSPORT_SERVED_SHARD_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kernels/nccl/device_link.h"
#include "server/shard/shard_server.h"
#include "tests/server/shard/agreement/plans.h"

namespace kaon::shard {

// Returns a context with a deadline, so that a call fails the test instead of hanging.
std::unique_ptr<grpc::ClientContext> WithDeadline();

// An open control stream to shard 0.
class ControlCall {
 public:
  explicit ControlCall(v1::ShardControl::Stub& stub, uint32_t num_shards = 1);

  void Send(const v1::CoordinatorToShard& message);
  v1::ShardToCoordinator Receive();
  v1::ShardToCoordinator Ask(const v1::CoordinatorToShard& message);
  // Stops writing and waits for the end.
  grpc::Status End();

 private:
  const uint32_t num_shards_;
  std::unique_ptr<grpc::ClientContext> context_ = WithDeadline();
  std::unique_ptr<grpc::ClientReaderWriter<v1::CoordinatorToShard, v1::ShardToCoordinator>> stream_;
};

// Returns an empty message of the coordinator to the only shard.
v1::CoordinatorToShard Envelope(uint64_t counter);

// Return the messages of a push after its first one.
v1::PushRequest ChunkRequest(uint32_t parameter, const std::vector<float>& values,
                             uint64_t offset = 0);
v1::PushRequest FinishRequest(const std::vector<uint32_t>& missing = {});
// Writes the requests, then closes its side. Returns the status of the call and the answers.
grpc::Status PushTo(v1::ShardData::Stub& shard, const std::vector<v1::PushRequest>& requests,
                    std::vector<v1::PushResponse>* responses = nullptr);

class ServedShardTest : public testing::Test {
 protected:
  // With a `link`, the shard receives gradients over it.
  explicit ServedShardTest(uint32_t shm_sessions = 0,
                           std::shared_ptr<kernels::DeviceLink> link = nullptr);

  static v1::CoordinatorToShard PromiseOf(uint64_t counter);
  static v1::CoordinatorToShard PlanOf(const v1::StepPlan& plan);
  static v1::CoordinatorToShard DecisionOf(const v1::StepRecord& record);

  static v1::PushRequest OpenRequest(uint32_t rank, uint64_t step);
  grpc::Status Push(const std::vector<v1::PushRequest>& requests,
                    std::vector<v1::PushResponse>* responses = nullptr) {
    return PushTo(*data_, requests, responses);
  }
  static v1::PullRequest PullOf(uint64_t step, const std::vector<uint32_t>& parameters);
  grpc::Status Pull(const v1::PullRequest& request,
                    std::vector<v1::PullResponse>* responses = nullptr);

  // Registers the job, loads weights as DrivenShard::Load does, and gets a plan of step 1 accepted.
  // Parameter b has `b_elements` elements, whose value tells their chunk, from 1. Rank 0 has
  // `micro_batches` micro-batches. With two shards, the other one has a parameter g.
  void PlanStepOne(uint64_t b_elements = 4, uint32_t micro_batches = 1, uint32_t num_shards = 1);
  v1::DescribeShardResponse Describe();
  // Returns the status of grpc.health.v1, or the error of the call.
  std::string Health(const std::string& service);

  std::string data_dir_;
  std::unique_ptr<ShardServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ShardData::Stub> data_;
  std::unique_ptr<v1::ShardControl::Stub> control_;
  std::unique_ptr<ControlCall> coordinator_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_TRANSPORT_SERVED_SHARD_H_
