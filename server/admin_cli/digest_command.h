// `kaonctl digest`: digests of a job's weights and state at one applied position, for each shard
// and for the whole job. No state; any thread.
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

// The same digests as in a StepRecord: `state` covers optimizer state and update counters.
struct ShardDigests {
  uint32_t shard = 0;
  std::string address;
  uint64_t weights = 0;
  uint64_t state = 0;
};

struct JobDigests {
  std::string job;
  uint64_t timeline = 0;
  // `position`: the newest entry that every shard has applied. `step`: the newest train step.
  uint64_t position = 0;
  uint64_t step = 0;
  // Sums over the shards, mod 2^64.
  uint64_t weights = 0;
  uint64_t state = 0;
  std::vector<ShardDigests> shards;
};

// AskDigests makes at most so many attempts while the shards step.
inline constexpr int kDigestAttempts = 20;

// Extracts the digests.
//   UNAVAILABLE  a shard did not answer; names it
//   DATA_LOSS    a shard lost its state; names it
//   ABORTED      two shards have different positions; names both
absl::StatusOr<JobDigests> DigestsIn(const v1::GetStatusResponse& status);

// Calls `ask` until all shards answer from one position, and `wait` between attempts. Returns
// errors of `ask`, and of DigestsIn after the last attempt.
absl::StatusOr<JobDigests> AskDigests(
    const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
    const std::function<void()>& wait);

Json DigestsJson(const JobDigests& digests);
std::string DigestsText(const JobDigests& digests);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_DIGEST_COMMAND_H_
