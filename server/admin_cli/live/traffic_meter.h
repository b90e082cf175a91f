// Rates of what shards receive and send, from successive answers about their processes. A value
// type; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_LIVE_TRAFFIC_METER_H_
#define KAON_SERVER_ADMIN_CLI_LIVE_TRAFFIC_METER_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "kaon/v1/server_process.pb.h"

namespace kaon::admin_cli {

// One shard at one moment.
struct ShardTraffic {
  // Bytes per second since the answer before. Absent without one, or if the shard has restarted.
  std::optional<double> pushed_per_second;
  std::optional<double> pulled_per_second;
  // Resident memory of the process; absent if it does not know.
  std::optional<uint64_t> resident_bytes;
};

class TrafficMeter {
 public:
  // Notes the answer of a shard at the time `now`.
  ShardTraffic Note(uint32_t shard, const v1::GetProcessResponse& process, absl::Time now);
  // Forgets a shard that did not answer: the next rate would be that of a longer time.
  void Forget(uint32_t shard) { before_.erase(shard); }

 private:
  struct Sample {
    uint64_t pushed_bytes = 0;
    uint64_t pulled_bytes = 0;
    absl::Time time;
  };
  std::map<uint32_t, Sample> before_;
};

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LIVE_TRAFFIC_METER_H_
