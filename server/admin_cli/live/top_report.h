// Prints one answer of `kaonctl top`: the rate of steps and, per shard, where the time of a step
// goes, traffic and memory. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_LIVE_TOP_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_LIVE_TOP_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/admin.pb.h"
#include "server/admin_cli/live/traffic_meter.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct TopFacts {
  v1::GetStatusResponse status;
  // The newest steps with their phases. Empty without a job.
  v1::StepHistoryResponse history;
  // Traffic by shard, of those that told it.
  std::map<uint32_t, ShardTraffic> traffic;
  // Why a connected shard did not tell its traffic.
  absl::Status traffic_seen;
};

// Returns the steps per second over the steps of the history whose time of decision is known. A
// wait that is longer than a step lowers it. Absent if fewer than two times are known.
std::optional<double> StepsPerSecond(const TopFacts& facts);

// UNAVAILABLE names the shards that did not answer, or did not tell their phases. Otherwise the
// reason why traffic is unknown.
absl::Status TopSeen(const TopFacts& facts);

// An unknown value is null in JSON and "-" in the table; it is never 0.
Json TopJson(const TopFacts& facts);
std::string TopText(const TopFacts& facts);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LIVE_TOP_REPORT_H_
