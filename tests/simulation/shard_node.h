// One shard process of a simulated cluster: the production ShardCore with a journal and streams in
// virtual time. Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_SHARD_NODE_H_
#define KAON_TESTS_SIMULATION_SHARD_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/backend.h"
#include "server/shard/shard_core.h"
#include "server/tier/host_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class ShardNode {
 public:
  using OnMessage = std::function<void(shard::StreamId, const v1::ShardToCoordinator&)>;

  ShardNode(World& world, int index);
  ~ShardNode();

  int index() const { return index_; }
  shard::ShardCore& core() { return *core_; }
  const shard::ShardMachine& machine() const { return core_->machine(); }

  // A control stream. Messages to it are lost once it is closed.
  shard::StreamId OpenStream(OnMessage on_message);
  void CloseStream(shard::StreamId stream);
  void Deliver(shard::StreamId stream, const v1::CoordinatorToShard& message);

  // Of the newest version.
  std::vector<float> Weights(uint32_t parameter_id);
  // Calls `on_read` when version `step` can be read; never if it is gone.
  void Pull(uint32_t parameter_id, uint64_t step,
            std::function<void(const std::vector<float>&)> on_read);

  // The record of an entry it has decided.
  absl::StatusOr<v1::StepRecord> ReadHistory(uint64_t position) const;

  // Carries out what the core wants after an event on it.
  void Drain();

  // Starts again without state and without saying so: a seeded bug.
  void Forget();

 private:
  void Start();

  World& world_;
  const int index_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<tier::HostTier> tier_;
  std::unique_ptr<tier::TieredStore> store_;
  std::unique_ptr<shard::ShardCore> core_;
  uint64_t life_ = 0;
  shard::StreamId next_stream_ = 1;
  std::map<shard::StreamId, OnMessage> streams_;
  // Decided records by position.
  std::map<uint64_t, v1::StepRecord> history_;
  // Appends become durable in order.
  absl::Time last_durable_ = absl::InfinitePast();
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_SHARD_NODE_H_
