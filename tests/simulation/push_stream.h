// One push stream between a simulated worker and a shard. Opens, sends what the shard lacks within
// its credit, and finishes. Messages have latency and arrive in order, some twice; the stream may
// break at any of them. Owned by its WorkerNode and by its own events; one thread.
#ifndef KAON_TESTS_SIMULATION_PUSH_STREAM_H_
#define KAON_TESTS_SIMULATION_PUSH_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client/worker_session.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

struct PushContext {
  const v1::JobDefinition* job = nullptr;
  uint32_t rank = 0;
  v1::Attempt attempt;
  uint64_t timeline = 1;
  uint64_t step = 0;
  v1::Ballot ballot;
  uint64_t round = 0;
  // Nonce that the gradients are computed from.
  uint64_t gradient_nonce = 0;
  client::StepShare share;
};

class PushStream : public std::enable_shared_from_this<PushStream> {
 public:
  // Runs once, unless Break precedes it; OK if the shard has accepted everything.
  using OnEnded = std::function<void(const absl::Status&)>;

  static std::shared_ptr<PushStream> Start(World& world, ShardNode& shard, PushContext context,
                                           OnEnded on_ended);

  // Ends the worker's interest, or its life; messages in flight may still arrive.
  void Break();

  // Keeps the stream alive although another process has replaced this one. It reopens the stream
  // for a while when the shard ends it.
  void Outlive();

 private:
  struct Chunk {
    uint32_t parameter_id = 0;
    uint32_t micro_batch = 0;
    uint64_t offset = 0;
    uint64_t num_elements = 0;
  };

  PushStream(World& world, ShardNode& shard, PushContext context, OnEnded on_ended);

  void Open();
  // Plans to send what the shard lacks; all of it if the worker did not look at `received`.
  void Plan(const v1::PushOpened& opened);
  void SendNext();
  void Deliver(const Chunk& chunk);
  void DeliverFinish();
  void End(const absl::Status& status);
  // Returns true if the shard has forgotten the stream.
  bool Lost() const { return !shard_.alive() || shard_.life() != shard_life_; }
  void Close();
  void Later(std::function<void()> event);
  std::vector<float> Values(uint32_t parameter_id) const;

  World& world_;
  ShardNode& shard_;
  const PushContext context_;
  OnEnded on_ended_;
  // Number of times an outlived stream was reopened.
  int reopenings_ = 0;
  // 0 before the stream opens and after it ends.
  shard::PushStreamId stream_ = 0;
  // Life of the shard when the stream was opened.
  uint64_t shard_life_ = 0;
  int64_t credit_bytes_ = 0;
  bool waiting_for_credit_ = false;
  std::deque<Chunk> chunks_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_PUSH_STREAM_H_
