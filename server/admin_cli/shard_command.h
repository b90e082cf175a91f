// `kaonctl shard drain`: ends one shard between two steps, and on request waits until it is back.
// No state; main's thread.
#ifndef KAON_SERVER_ADMIN_CLI_SHARD_COMMAND_H_
#define KAON_SERVER_ADMIN_CLI_SHARD_COMMAND_H_

#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct DrainedShard {
  uint32_t shard = 0;
  v1::DrainShardResponse stopped;
  // Time until it was back; absent without --wait.
  std::optional<double> away_seconds;
};

// Returns whether the shard, which stopped at `position`, is back: it takes part again and `status`
// is that of the coordinator that holds the shards. DATA_LOSS if it is back without its state.
absl::StatusOr<bool> IsBack(const v1::GetStatusResponse& status, uint32_t shard, uint64_t position);

// Calls `ask` until the shard is back, and `pause` between two calls. Writes to `progress` each
// time that what it waits for changes. Errors: DATA_LOSS as IsBack; DEADLINE_EXCEEDED after
// `timeout`, with what the shard lacks.
absl::Status AwaitBack(const DrainedShard& drained, absl::Duration timeout,
                       const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
                       const AdminCalls::Pause& pause, std::ostream& progress);

// Drains the shard of the options. A drain that takes too long names what the job waits for.
absl::StatusOr<DrainedShard> DrainShard(const AdminCalls& calls, const Options& options,
                                        std::ostream& progress);

Json DrainedJson(const DrainedShard& drained);
std::string DrainedText(const DrainedShard& drained);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_SHARD_COMMAND_H_
