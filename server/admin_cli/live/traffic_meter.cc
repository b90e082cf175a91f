#include "server/admin_cli/live/traffic_meter.h"

namespace kaon::admin_cli {

namespace {

std::optional<double> Rate(uint64_t before, uint64_t now, double seconds) {
  if (now < before || seconds <= 0) return std::nullopt;
  return static_cast<double>(now - before) / seconds;
}

}  // namespace

ShardTraffic TrafficMeter::Note(uint32_t shard, const v1::GetProcessResponse& process,
                                absl::Time now) {
  ShardTraffic traffic;
  if (process.resident_bytes() > 0) traffic.resident_bytes = process.resident_bytes();
  const auto before = before_.find(shard);
  if (before != before_.end()) {
    const double seconds = absl::ToDoubleSeconds(now - before->second.time);
    traffic.pushed_per_second = Rate(before->second.pushed_bytes, process.pushed_bytes(), seconds);
    traffic.pulled_per_second = Rate(before->second.pulled_bytes, process.pulled_bytes(), seconds);
  }
  before_[shard] = {process.pushed_bytes(), process.pulled_bytes(), now};
  return traffic;
}

}  // namespace kaon::admin_cli
