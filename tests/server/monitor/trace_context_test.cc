#include "server/monitor/trace_context.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace kaon::monitor {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

TEST(TraceContextTest, ReadsBothIds) {
  for (const std::string ends : {"00-%-01", "00-%-00", "01-%-01-more"}) {
    const std::string text = ends.substr(0, 3) + kTrace + "-" + kSpan + ends.substr(4);
    const std::optional<TraceContext> context = ParseTraceparent(text);
    ASSERT_TRUE(context.has_value()) << text;
    EXPECT_EQ(absl::BytesToHexString(context->trace_id), kTrace);
    EXPECT_EQ(absl::BytesToHexString(context->span_id), kSpan);
    EXPECT_EQ(context->sampled, ends != "00-%-00");
  }
}

TEST(TraceContextTest, RefusesWhatIsMalformed) {
  const std::string good = std::string("00-") + kTrace + "-" + kSpan + "-01";
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = 'G';
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << bad;
    EXPECT_FALSE(ParseTraceparent(good.substr(0, at)).has_value()) << at;
  }
  for (const std::string& bad :
       {good + "0", good + "-00", "ff" + good.substr(2), "01" + good.substr(2) + "0",
        std::string("00-") + kTrace + "-0000000000000000-01",
        std::string("00-00000000000000000000000000000000-") + kSpan + "-01"}) {
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace kaon::monitor
