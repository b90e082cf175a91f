#include "server/admin_cli/live/watch_events.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

namespace kaon::admin_cli {
namespace {

v1::GetStatusResponse Status(uint64_t takeovers, uint64_t promises, bool connected = true) {
  v1::GetStatusResponse status;
  status.set_time_unix_millis(1'000);
  if (takeovers > 0) {
    v1::EventCount& event = *status.add_events();
    event.set_name("takeover");
    event.set_count(takeovers);
  }
  v1::ShardStatus& shard = *status.add_shards();
  shard.set_connected(connected);
  shard.set_address("a:1");
  if (!connected) {
    shard.set_problem("gone");
    return status;
  }
  v1::EventCount& event = *shard.mutable_description()->add_events();
  event.set_name("promise");
  event.set_count(promises);
  return status;
}

struct Watched {
  absl::Status status;
  std::string out;
  std::string errors;
};

Watched Watch(std::vector<absl::StatusOr<v1::GetStatusResponse>> answers, bool json = false) {
  std::ostringstream out;
  std::ostringstream errors;
  size_t turn = 0;
  Watched watched;
  watched.status = WatchEvents([&] { return answers[turn]; },
                               [&] { return ++turn < answers.size(); }, json, out, errors);
  watched.out = out.str();
  watched.errors = errors.str();
  return watched;
}

TEST(WatchEventsTest, PrintsWhatIsNewSinceTheFirstAnswer) {
  const Watched watched = Watch({Status(0, 3), Status(0, 3), Status(2, 3), Status(2, 4)});
  EXPECT_EQ(watched.out,
            "1970-01-01T00:00:01Z  coordinator  takeover +2 (2)\n"
            "1970-01-01T00:00:01Z  shard 0      promise +1 (4)\n");
  EXPECT_EQ(watched.errors, "");
  EXPECT_TRUE(watched.status.ok());
}

TEST(WatchEventsTest, JsonIsAnObjectALine) {
  EXPECT_EQ(Watch({Status(0, 3), Status(0, 5)}, true).out,
            "{\"time\":\"1970-01-01T00:00:01Z\",\"server\":\"shard 0\",\"event\":\"promise\","
            "\"new\":2,\"count\":5}\n");
}

TEST(WatchEventsTest, AllIsNewOfAServerThatRestarted) {
  EXPECT_EQ(Watch({Status(0, 7), Status(0, 2)}).out,
            "1970-01-01T00:00:01Z  shard 0      promise +2 (2)\n");
}

v1::GetStatusResponse Started(int64_t unix_millis, uint64_t takeovers) {
  v1::GetStatusResponse status = Status(takeovers, 3);
  status.set_started_unix_millis(unix_millis);
  return status;
}

TEST(WatchEventsTest, NothingIsNewInTheFirstAnswerOfAnotherCoordinator) {
  EXPECT_EQ(Watch({Started(100, 2), Started(500, 9), Started(500, 10), Started(100, 2)}).out,
            "1970-01-01T00:00:01Z  coordinator  takeover +1 (10)\n");
}

TEST(WatchEventsTest, AllIsNewOfACoordinatorThatRestarted) {
  EXPECT_EQ(Watch({Started(100, 2), Started(1'500, 3)}).out,
            "1970-01-01T00:00:01Z  coordinator  takeover +3 (3)\n");
}

TEST(WatchEventsTest, SaysOnceThatAShardIsAway) {
  const Watched watched =
      Watch({Status(0, 3), Status(0, 0, false), Status(0, 0, false), Status(0, 4)});
  EXPECT_EQ(watched.errors,
            "kaonctl: shard 0 at a:1 does not answer: gone\n"
            "kaonctl: shard 0 at a:1 answers again\n");
  EXPECT_EQ(watched.out, "1970-01-01T00:00:01Z  shard 0      promise +1 (4)\n");
}

TEST(WatchEventsTest, AsksAgainWhileNobodyAnswers) {
  const absl::Status away = absl::UnavailableError("away");
  const Watched watched = Watch({Status(0, 3), away, away, Status(0, 4)});
  EXPECT_EQ(watched.errors, "kaonctl: UNAVAILABLE: away; asking again\n");
  EXPECT_EQ(watched.out, "1970-01-01T00:00:01Z  shard 0      promise +1 (4)\n");
}

}  // namespace
}  // namespace kaon::admin_cli
