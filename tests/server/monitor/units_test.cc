#include "server/monitor/units.h"

#include <gtest/gtest.h>

namespace kaon::monitor {
namespace {

TEST(UnitsTest, BytesHaveTheUnitThatFits) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1024), "1.0 KiB");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(Bytes(uint64_t{4} << 30), "4.0 GiB");
  EXPECT_EQ(Bytes(UINT64_MAX), "16.0 EiB");
}

TEST(UnitsTest, TimesHaveTheUnitThatFits) {
  EXPECT_EQ(Seconds(0), "0 s");
  EXPECT_EQ(Seconds(0.0015), "1.5 ms");
  EXPECT_EQ(Seconds(2.5), "2.5 s");
  EXPECT_EQ(Seconds(59.96), "1m 0s");
  EXPECT_EQ(Seconds(200), "3m 20s");
  EXPECT_EQ(Seconds(7500), "2h 5m");
  EXPECT_EQ(Seconds(356400), "4d 3h");
}

TEST(UnitsTest, TimesOfDayAreRfc3339InUtc) {
  EXPECT_EQ(TimeText(1795749300999), "2026-11-27T03:15:00Z");
  EXPECT_EQ(TimeText(0), "");
}

}  // namespace
}  // namespace kaon::monitor
