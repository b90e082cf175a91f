// `kaonctl digest`: the digests of a job's weights and state at one applied position, per shard and
// of the whole job. No state; any thread.
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

// As a StepRecord has it: of weights, optimizer state and update counters.
struct ShardDigests {
  uint32_t shard = 0;
  std::string address;
  uint64_t weights = 0;
  uint64_t state = 0;
};

struct JobDigests {
  std::string job;
  uint64_t timeline = 0;
  // Of the newest entry that every shard has applied, and of the newest train step.
  uint64_t position = 0;
  uint64_t step = 0;
  // The shards' added up (mod 2^64).
  uint64_t weights = 0;
  uint64_t state = 0;
  std::vector<ShardDigests> shards;
};

// How often it is asked before shards that step while they are asked are an error.
inline constexpr int kDigestAttempts = 20;

// UNAVAILABLE naming a shard that did not answer, DATA_LOSS one that lost its state, ABORTED two
// shards and their positions when these differ.
absl::StatusOr<JobDigests> DigestsIn(const v1::GetStatusResponse& status);

// Calls `ask` until every shard answers from one position; `wait` between two attempts. Errors of
// `ask`, and of DigestsIn after the last attempt.
absl::StatusOr<JobDigests> AskDigests(
    const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
    const std::function<void()>& wait);

Json DigestsJson(const JobDigests& digests);
std::string DigestsText(const JobDigests& digests);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_DIGEST_COMMAND_H_
