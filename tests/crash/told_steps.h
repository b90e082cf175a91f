// Rebuilds entries that a shard no longer shows from the records that clients got. A rollback has
// discarded those entries, or they were never written (mode INTERVAL). Pure functions; one thread.
#ifndef KAON_TESTS_CRASH_TOLD_STEPS_H_
#define KAON_TESTS_CRASH_TOLD_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/crash/client_log.h"
#include "tests/simulation/history.h"

namespace kaon::crash {

// Adds the other steps that clients were told of to `log`, which a shard has shown.
// DATA_LOSS: no log explains a record, because the shard does not know its timeline or nobody had
// begun its gradients.
// UNAVAILABLE: an entry cannot be rebuilt, because clients got only records of later ones. The
// message names the entry.
absl::Status AddToldSteps(const v1::JobDefinition& job, const ClientHistory& history,
                          simulation::Log& log);

struct TakenBack {
  uint64_t timeline = 1;
  uint64_t step = 0;
  // The timeline that the rollback began.
  uint64_t next_timeline = 0;
};
// Returns the steps that the rollbacks of a log discarded. DATA_LOSS names the rollback that
// discarded more than `most` steps at once.
absl::StatusOr<std::vector<TakenBack>> FindTakenBack(const simulation::Log& log, uint64_t most);

}  // namespace kaon::crash

#endif  // KAON_TESTS_CRASH_TOLD_STEPS_H_
