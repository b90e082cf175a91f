// State that the nodes of a simulated cluster share: virtual time, the seed's randomness, the
// network's habits, the trace and its hash, the verdict. Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_WORLD_H_
#define KAON_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/disk/simulated_disk.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/history.h"
#include "tests/simulation/invariants.h"

namespace kaon::simulation {

class World {
 public:
  explicit World(const ClusterOptions& options)
      : options_(options), random_(options.seed), checkpoints_("/checkpoints", options.seed) {}

  const ClusterOptions& options() const { return options_; }
  EventQueue& queue() { return queue_; }
  absl::Time now() const { return queue_.now(); }
  ClusterResult& result() { return result_; }
  Invariants& invariants() { return *invariants_; }
  void set_invariants(std::unique_ptr<Invariants> invariants) {
    invariants_ = std::move(invariants);
  }

  // Directory that all shards and coordinators see. None of its files stays open from one event to
  // the next.
  SimulatedDirectory& checkpoints() { return checkpoints_; }

  // Calls of the clients and their results.
  History& history() { return history_; }

  // Faults stop for good once this is false.
  bool faulty() const { return faulty_; }
  void StopFaults() { faulty_ = false; }

  // Last train step that workers do, as far as it is known; they wait before the next one.
  uint64_t last_step() const {
    return options_.num_steps + (options_.past_faults && !faulty_ ? kStepsPastFaults : 0);
  }
  // True if no more steps will be added.
  bool last_step_is_known() const { return !options_.past_faults || !faulty_; }

  // Rank of the worker that holds steps at present.
  std::optional<uint32_t> holder() const { return holder_; }
  void set_holder(std::optional<uint32_t> rank) { holder_ = rank; }

  uint64_t Random() { return random_(); }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }
  bool Lost() { return faulty_ && Chance(options_.loss); }
  bool Doubled() { return faulty_ && Chance(options_.duplication); }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }
  // Returns the latency of one message. A few are much later than the rest, so that messages
  // overtake one another.
  absl::Duration Latency() {
    return Chance(0.02) ? Between(absl::Milliseconds(5), absl::Milliseconds(400))
                        : Between(absl::Microseconds(100), absl::Milliseconds(2));
  }

  // Adds a line to the trace and to its hash, because two runs of one seed must be equal. Keeps the
  // newest lines.
  void Trace(const std::string& line) {
    const int64_t micros = absl::ToUnixMicros(now());
    Hash(static_cast<uint64_t>(micros));
    for (const char c : line) Hash(static_cast<uint8_t>(c));
    if (options_.newest_events != nullptr) options_.newest_events->Add(micros, line);
    if (options_.trace) std::cerr << micros << " " << line << std::endl;
  }

 private:
  static constexpr uint64_t kStepsPastFaults = 3;

  void Hash(uint64_t value) { result_.event_hash = (result_.event_hash ^ value) * 0x100000001b3; }

  const ClusterOptions options_;
  EventQueue queue_;
  std::mt19937_64 random_;
  SimulatedDirectory checkpoints_;
  ClusterResult result_;
  std::unique_ptr<Invariants> invariants_;
  History history_;
  bool faulty_ = true;
  std::optional<uint32_t> holder_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_WORLD_H_
