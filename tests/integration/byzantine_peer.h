// A worker with a good rank and bad manners: calls a real coordinator and a real shard of one
// process by plain stubs, with whatever the test puts into the messages. Blocking calls with a
// deadline; one thread.
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

  // `job` is registered; the cluster has one shard.
  ByzantinePeer(const testing::InProcessCluster& cluster, v1::JobDefinition job);

  // Takes rank 1 and begins step 1 as it should; every other worker has begun it. Follows the step
  // until its plan is there.
  grpc::Status BeginHonestly();
  // Pushes what rank 1 is expected to push in step 1.
  grpc::Status PushHonestly();

  // From now on Push, Pull, CancelStorm and PullWithoutReading go over shared memory, the others as
  // before. The shard has sessions.
  void UseSharedMemory();

  // What it should send; to be spoiled.
  v1::JoinWorkerRequest JoinRequest() const;
  v1::BeginStepRequest BeginRequest() const;
  v1::AwaitStepRequest AwaitRequest() const;
  v1::PushRequest Open() const;
  // All of a parameter's gradient.
  v1::PushRequest Chunk(uint32_t parameter_id) const;
  // The same of several parameters, in one message.
  v1::PushRequest Pieces(const std::vector<uint32_t>& parameter_ids) const;
  // The request with that payload and its checksum.
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
  // Opens, then sends the same message until the shard has ended the stream, so many times at most;
  // `sent` says how many.
  grpc::Status PushAgainAndAgain(const v1::PushRequest& request, int times, int* sent);
  grpc::Status PushCompressed(const v1::PushRequest& request);
  grpc::Status PushWithMetadata(size_t bytes);
  grpc::Status Pull(const v1::PullRequest& request);
  // Opens as many push streams and leaves each without a word; CANCELLED if that is how they end.
  grpc::Status CancelStorm(int streams);
  // A pull whose answer is never read, then given up.
  grpc::Status PullWithoutReading();

  // Over shared memory: opens a push and lets `send` do what ends the session; the next one is open
  // once that has ended. Why it ended, in the shard's words.
  grpc::Status EndSession(const std::function<void(ByzantinePeer&, shard::ShmWorker&)>& send);
  // As one call whose only record has that body.
  grpc::Status PushBody(const std::string& body);

  // Of the shard, as it is.
  uint64_t StateDigest();

 private:
  // What was sent in the session so far has been taken, and a call that is refused is answered.
  bool IsServed();

  const v1::JobDefinition job_;
  const std::string shard_address_;
  const std::shared_ptr<grpc::Channel> shard_channel_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::ShardData::Stub> data_;
  std::unique_ptr<v1::ShardControl::Stub> control_;
  v1::Attempt attempt_;
  // Null unless it uses shared memory.
  std::unique_ptr<shard::ShmWorker> session_;
};

}  // namespace kaon

#endif  // KAON_TESTS_INTEGRATION_BYZANTINE_PEER_H_
