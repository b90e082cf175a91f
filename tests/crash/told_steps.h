// Entries that a shard shows no more, because a rollback has taken them back or because they were
// never written (mode INTERVAL), made again of what clients were told of them. Pure functions; one
// thread.
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

// Adds to `log`, which a shard has shown, the other steps that clients were told of. DATA_LOSS with
// what no log can explain: a step of a timeline that the shard knows nothing of, or of gradients
// that nobody had begun. UNAVAILABLE naming an entry that is not to be had, as nobody was told of
// it while others were told of a later one: what came of it cannot be told.
absl::Status AddToldSteps(const v1::JobDefinition& job, const ClientHistory& history,
                          simulation::Log& log);

struct TakenBack {
  uint64_t timeline = 1;
  uint64_t step = 0;
  // The one that the rollback began.
  uint64_t next_timeline = 0;
};
// The steps that the rollbacks of a log took back; DATA_LOSS naming the one that took more than
// `most` at once.
absl::StatusOr<std::vector<TakenBack>> FindTakenBack(const simulation::Log& log, uint64_t most);

}  // namespace kaon::crash

#endif  // KAON_TESTS_CRASH_TOLD_STEPS_H_
