#include "server/admin_cli/events_report.h"

#include <gtest/gtest.h>

#include <string>

#include "server/admin_cli/status_report.h"

namespace kaon::admin_cli {
namespace {

v1::GetStatusResponse Counted() {
  v1::GetStatusResponse status;
  status.add_events()->set_name("takeover");
  status.mutable_events(0)->set_count(3);
  v1::ShardStatus& shard = *status.add_shards();
  shard.set_shard(1);
  shard.set_connected(true);
  v1::EventCount& refused = *shard.mutable_description()->add_events();
  refused.set_name("push_refused.unavailable");
  refused.set_count(uint64_t{1} << 40);
  return status;
}

TEST(EventsReportTest, JsonOfAStatusHasThemByName) {
  const Json json = StatusJson(Counted());
  EXPECT_EQ(json["events"].dump(), "{\"takeover\":3}");
  EXPECT_EQ(json["shards"][0]["events"].dump(), "{\"push_refused.unavailable\":1099511627776}");
  EXPECT_EQ(StatusJson(v1::GetStatusResponse())["events"].dump(), "{}");
}

TEST(EventsReportTest, TextNamesTheServer) {
  const std::string text = EventsText(Counted());
  EXPECT_NE(text.find("coordinator  takeover"), std::string::npos) << text;
  EXPECT_NE(text.find("shard 1      push_refused.unavailable  1099511627776"), std::string::npos)
      << text;
}

TEST(EventsReportTest, ShardThatDoesNotAnswerIsUnknown) {
  v1::GetStatusResponse status = Counted();
  v1::ShardStatus& away = *status.add_shards();
  away.set_shard(2);
  const std::string text = EventsText(status);
  EXPECT_NE(text.find("shard 2      unknown"), std::string::npos) << text;
}

}  // namespace
}  // namespace kaon::admin_cli
