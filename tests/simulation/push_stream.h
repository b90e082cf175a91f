// One push stream between a simulated worker and a shard: opens, sends what the shard lacks within
// its credit, finishes; messages travel with latency and in order, some twice, and the stream may
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
  // Nonce the gradients are computed from.
  uint64_t gradient_nonce = 0;
  client::StepShare share;
};

class PushStream : public std::enable_shared_from_this<PushStream> {
 public:
  // Runs once, unless Break comes first; OK when the shard has accepted everything.
  using OnEnded = std::function<void(const absl::Status&)>;

  static std::shared_ptr<PushStream> Start(World& world, ShardNode& shard, PushContext context,
                                           OnEnded on_ended);

  // The worker is no longer interested, or dead; what is under way may still arrive.
  void Break();

  // The process is not as dead as who started another one in its place believes: it goes on for a
  // while, and opens the stream again when the shard ends it.
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
  // What the shard lacks; all of it if the worker did not look at `received`.
  void Plan(const v1::PushOpened& opened);
  void SendNext();
  void Deliver(const Chunk& chunk);
  void DeliverFinish();
  void End(const absl::Status& status);
  // What the shard knows of the stream is gone.
  bool Lost() const { return !shard_.alive() || shard_.life() != shard_life_; }
  void Close();
  void Later(std::function<void()> event);
  std::vector<float> Values(uint32_t parameter_id) const;

  World& world_;
  ShardNode& shard_;
  const PushContext context_;
  OnEnded on_ended_;
  // How often an outlived stream is opened again.
  int reopenings_ = 0;
  // 0 before it is open, and once it is over.
  shard::PushStreamId stream_ = 0;
  // Of the shard, when it was opened.
  uint64_t shard_life_ = 0;
  int64_t credit_bytes_ = 0;
  bool waiting_for_credit_ = false;
  std::deque<Chunk> chunks_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_PUSH_STREAM_H_
