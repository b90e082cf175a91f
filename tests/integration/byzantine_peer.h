// A malicious worker with a valid rank. Calls a real coordinator and a real shard of one process by
// plain stubs, with any message the test builds. Blocking calls with a deadline; one thread.
#ifndef KAON_TESTS_INTEGRATION_BYZANTINE_PEER_H_
#define KAON_TESTS_INTEGRATION_BYZANTINE_PEER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "tests/server/shard/transport/shm_worker.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon {

class ByzantinePeer {
 public:
  static constexpr uint32_t kRank = 1;
  static constexpr uint64_t kNonce = 4711;

  // Requires that `job` is registered and that the cluster has one shard.
  ByzantinePeer(const testing::InProcessCluster& cluster, v1::JobDefinition job);

  // Takes rank 1 and begins step 1 correctly, after every other worker has begun it. Follows the
  // step until it has a plan.
  grpc::Status BeginHonestly();
  // Pushes the correct gradients of rank 1 in step 1.
  grpc::Status PushHonestly();

  // Makes Push, Pull, CancelStorm and PullWithoutReading use shared memory from now on. The shard
  // must have sessions.
  void UseSharedMemory();

  // The correct requests, which a test then corrupts.
  v1::JoinWorkerRequest JoinRequest() const;
  v1::BeginStepRequest BeginRequest() const;
  v1::AwaitStepRequest AwaitRequest() const;
  v1::PushRequest Open() const;
  // Returns all of a parameter's gradient.
  v1::PushRequest Chunk(uint32_t parameter_id) const;
  // Returns the gradients of several parameters in one message.
  v1::PushRequest Pieces(const std::vector<uint32_t>& parameter_ids) const;
  // Returns the request with that payload and its checksum.
  static v1::PushRequest WithPayload(v1::PushRequest request, std::string payload);
  static v1::PushRequest Finish();
  v1::PullRequest PullRequest() const;
  const v1::JobDefinition& job() const { return job_; }

  grpc::Status Register(const v1::JobDefinition& job);
  grpc::Status GetJob(const std::string& job);
  grpc::Status Join(const v1::JoinWorkerRequest& request);
  grpc::Status Begin(const v1::BeginStepRequest& request);
  grpc::Status Await(const v1::AwaitStepRequest& request);
  grpc::Status Push(const std::vector<v1::PushRequest>& requests);
  // Opens a push and sends the same message until the shard ends the stream, at most `times` times.
  // `sent` returns how often it was sent.
  grpc::Status PushAgainAndAgain(const v1::PushRequest& request, int times, int* sent);
  grpc::Status PushCompressed(const v1::PushRequest& request);
  grpc::Status PushWithMetadata(size_t bytes);
  grpc::Status Pull(const v1::PullRequest& request);
  // Opens so many push streams and abandons each; CANCELLED if all of them end that way.
  grpc::Status CancelStorm(int streams);
  // Starts a pull, never reads its answer, and cancels it.
  grpc::Status PullWithoutReading();

  // Over shared memory: opens a push and calls `send`, which makes the shard end the session.
  // Returns the shard's reason, once the next session is open.
  grpc::Status EndSession(const std::function<void(ByzantinePeer&, shard::ShmWorker&)>& send);
  // Pushes over shared memory, as a call whose only record has that body.
  grpc::Status PushBody(const std::string& body);

  // Returns the shard's present state digest.
  uint64_t StateDigest();

 private:
  // Returns true if the shard has read everything sent in the session and still answers a bad call.
  bool IsServed();

  const v1::JobDefinition job_;
  const std::string shard_address_;
  const std::shared_ptr<grpc::Channel> shard_channel_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::ShardData::Stub> data_;
  std::unique_ptr<v1::ShardControl::Stub> control_;
  v1::Attempt attempt_;
  // Null unless the peer uses shared memory.
  std::unique_ptr<shard::ShmWorker> session_;
};

}  // namespace kaon

#endif  // KAON_TESTS_INTEGRATION_BYZANTINE_PEER_H_
