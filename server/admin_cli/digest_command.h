// `kaonctl digest`: digests of a job's weights and state at one applied position, per shard and for
// the whole job. Stateless; thread-safe.
#ifndef KAON_SERVER_ADMIN_CLI_DIGEST_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_DIGEST_COMMAND_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// Digests as in a StepRecord: of the weights; and of weights, optimizer state and update counters.
struct ShardDigests {
  uint32_t shard = 0;
  std::string address;
  uint64_t weights = 0;
  uint64_t state = 0;
};

struct JobDigests {
  std::string job;
  uint64_t timeline = 0;
  // Position of the newest entry that every shard has applied, and the newest train step.
  uint64_t position = 0;
  uint64_t step = 0;
  // Sums of the shards' digests (mod 2^64).
  uint64_t weights = 0;
  uint64_t state = 0;
  std::vector<ShardDigests> shards;
};

// Maximum number of attempts while the shards apply steps between the answers.
inline constexpr int kDigestAttempts = 20;

// Returns the digests at one position.
//   UNAVAILABLE  a shard did not answer; names it
//   DATA_LOSS    a shard lost its state; names it
//   ABORTED      two shards are at different positions; names shards and positions
absl::StatusOr<JobDigests> DigestsIn(const v1::GetStatusResponse& status);

// Calls `ask` until every shard answers from one position, and `wait` between two attempts. Returns
// the errors of `ask`, and that of DigestsIn after the last attempt.
absl::StatusOr<JobDigests> AskDigests(
    const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
    const std::function<void()>& wait);

Json DigestsJson(const JobDigests& digests);
std::string DigestsText(const JobDigests& digests);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_DIGEST_COMMAND_H_
