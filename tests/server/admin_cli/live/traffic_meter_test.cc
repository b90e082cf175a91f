#include "server/admin_cli/live/traffic_meter.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

v1::GetProcessResponse Process(uint64_t pushed, uint64_t pulled) {
  v1::GetProcessResponse process;
  process.set_pushed_bytes(pushed);
  process.set_pulled_bytes(pulled);
  return process;
}

TEST(TrafficMeterTest, RateIsThatSinceTheAnswerBefore) {
  TrafficMeter meter;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_FALSE(meter.Note(0, Process(100, 0), start).pushed_per_second.has_value());
  const ShardTraffic traffic = meter.Note(0, Process(300, 50), start + absl::Seconds(2));
  EXPECT_DOUBLE_EQ(traffic.pushed_per_second.value(), 100);
  EXPECT_DOUBLE_EQ(traffic.pulled_per_second.value(), 25);
  // Nothing was sent: that is known.
  EXPECT_EQ(meter.Note(0, Process(300, 50), start + absl::Seconds(3)).pushed_per_second, 0.0);
}

TEST(TrafficMeterTest, ShardsAreApart) {
  TrafficMeter meter;
  meter.Note(0, Process(100, 0), absl::UnixEpoch());
  EXPECT_FALSE(meter.Note(1, Process(300, 0), absl::UnixEpoch() + absl::Seconds(1))
                   .pushed_per_second.has_value());
}

TEST(TrafficMeterTest, NoRateOverARestartOrAGap) {
  TrafficMeter meter;
  const absl::Time start = absl::UnixEpoch();
  meter.Note(0, Process(100, 100), start);
  EXPECT_FALSE(
      meter.Note(0, Process(10, 10), start + absl::Seconds(1)).pushed_per_second.has_value());
  meter.Forget(0);
  EXPECT_FALSE(
      meter.Note(0, Process(20, 20), start + absl::Seconds(2)).pulled_per_second.has_value());
}

TEST(TrafficMeterTest, UnknownMemoryIsAbsent) {
  TrafficMeter meter;
  v1::GetProcessResponse process;
  EXPECT_FALSE(meter.Note(0, process, absl::UnixEpoch()).resident_bytes.has_value());
  process.set_resident_bytes(5);
  EXPECT_EQ(meter.Note(0, process, absl::UnixEpoch()).resident_bytes, 5u);
}

}  // namespace
}  // namespace kaon::admin_cli
