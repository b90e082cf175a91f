// The state that one shard's disk says it agreed to. The reader does not use the shard's own
// replay. This is the other side of "on disk and in memory" (protocol.md 2.1). Plain values; one
// thread.
#ifndef KAON_TESTS_SIMULATION_DURABLE_STATE_H_
#define KAON_TESTS_SIMULATION_DURABLE_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::simulation {

struct DurableState {
  v1::Ballot promised;
  // Position of the newest decision, and its record, serialized; 0 and empty if none.
  uint64_t decided = 0;
  std::string record;
  // The newest vote after it, serialized as it was sent; empty if there is none.
  std::string prepared_plan;
};

// Returns what the worst power cut would leave on `disk` now. Errors are those of JournalLog::Open.
absl::StatusOr<DurableState> ReadDurableState(const SimulatedDirectory& disk);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_DURABLE_STATE_H_
