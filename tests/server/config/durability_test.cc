#include "server/config/durability.h"

#include <gtest/gtest.h>

namespace kaon::config {
namespace {

TEST(DurabilityTest, ReadsWhatItWrites) {
  for (const char* text : {"journal", "none", "interval(1)", "interval(50)", "interval(1000000)"}) {
    const absl::StatusOr<Durability> read = ParseDurability(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(DurabilityText(read->mode, read->interval_steps), text);
  }
  EXPECT_EQ(ParseDurability("")->mode, v1::DURABILITY_MODE_JOURNAL);
  const absl::StatusOr<Durability> zeros = ParseDurability("interval(007)");
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_EQ(DurabilityText(zeros->mode, zeros->interval_steps), "interval(7)");
}

TEST(DurabilityTest, NamesWhatMayStandThere) {
  for (const char* text : {"Journal", "interval", "interval()", "interval(0)", "interval(1000001)",
                           "interval(-1)", "interval(+1)", "interval( 1)", "interval(5", "none ",
                           "interval(99999999999)", "interval(4)x"}) {
    const absl::StatusOr<Durability> read = ParseDurability(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(read.status().message(),
              "durability is \"" + std::string(text) +
                  "\", must be journal, interval(K) with K of 1 .. 1000000, or none");
  }
}

}  // namespace
}  // namespace kaon::config
