// Drives StatusFeed as well: the page of a coordinator with two shards.
#include "server/coordinator/page/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/server/coordinator/server_fixture.h"
#include "tests/server/monitor/metrics/http_client.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "0123456789abcdef";

class StatusPageTest : public ServerFixture {
 protected:
  StatusPageTest() {
    metrics_token_file_ = testing::TempDir() + "/status-token";
    std::ofstream(metrics_token_file_) << kToken;
    chmod(metrics_token_file_.c_str(), 0600);
  }

  std::string Get(const std::string& target) {
    return metrics::Fetch(server_->metrics_port(), target, kBearer);
  }

  static constexpr char kBearer[] = "Authorization: Bearer 0123456789abcdef\r\n";
};

TEST_F(StatusPageTest, ShowsTheJobAndItsShards) {
  Train();
  const std::string page = Get("/");
  EXPECT_EQ(metrics::StatusOf(page), 200);
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("serving</span>"));
  EXPECT_THAT(page, HasSubstr("<caption>Each shard, those with a problem first</caption>"));
  EXPECT_THAT(page, HasSubstr(shards_[0]->address()));
  EXPECT_THAT(page, HasSubstr("loaded the initial weights"));
  EXPECT_LT(page.size(), 200000u);
}

TEST_F(StatusPageTest, NeedsTheToken) {
  for (const char* const target : {"/", "/events", "/parameters", "/steps.csv", "/parameters.csv",
                                   "/parameter", "/parameter.csv"}) {
    EXPECT_EQ(metrics::StatusOf(metrics::Fetch(server_->metrics_port(), target)), 401) << target;
  }
  EXPECT_EQ(metrics::StatusOf(metrics::Fetch(server_->metrics_port(), "/metrics")), 200);
}

TEST_F(StatusPageTest, StreamsSectionsThatChange) {
  Train();
  metrics::HttpConnection connection(server_->metrics_port());
  connection.Send(absl::StrCat("GET /events HTTP/1.1\r\nHost: localhost\r\n", kBearer, "\r\n"));
  EXPECT_THAT(connection.ReadUntil("\"id\":\"checkpoints\"}"), HasSubstr("\"id\":\"summary\"}"));
  // A shard that ends changes the table of shards.
  shards_[1].reset();
  EXPECT_THAT(connection.ReadUntil("\"id\":\"shards\"}"), HasSubstr("down"));
}

TEST_F(StatusPageTest, SearchesParameters) {
  Train();
  EXPECT_THAT(Get("/parameters"), HasSubstr("<caption>Routing table</caption>"));
  EXPECT_THAT(Get("/parameters?q=no-such-name"), HasSubstr("None."));
  EXPECT_THAT(Get("/parameters?q=("), HasSubstr("INVALID_ARGUMENT: name_regex"));
  EXPECT_THAT(Get("/parameters?first=x"), HasSubstr("page_token"));
  EXPECT_THAT(Get("/parameters.csv"), HasSubstr("parameter_id,name,route"));
  EXPECT_EQ(metrics::StatusOf(Get("/parameters.csv?q=(")), 400);
  EXPECT_THAT(Get("/steps.csv?last=all"), HasSubstr("position,step,outcome"));
}

TEST_F(StatusPageTest, DrawsTheHistoryOfAParameter) {
  Train();
  EXPECT_THAT(Get("/parameters"), HasSubstr("href=\"/parameter?id=0\""));
  EXPECT_THAT(Get("/parameter?id=0"), HasSubstr("A sample every 10 steps"));
  EXPECT_THAT(Get("/parameter.csv?id=0"), HasSubstr("step,weight_norm"));
  EXPECT_THAT(Get("/parameter"), HasSubstr("id must be the number of a parameter"));
  EXPECT_EQ(metrics::StatusOf(Get("/parameter.csv?id=x")), 400);
  EXPECT_EQ(metrics::StatusOf(Get("/parameter.csv?id=99999")), 404);
}

TEST_F(StatusPageTest, SaysThatThereIsNoJob) {
  EXPECT_THAT(Get("/"), HasSubstr("No values yet."));
  EXPECT_THAT(Get("/parameters"), HasSubstr("NOT_FOUND"));
}

}  // namespace
}  // namespace kaon::coordinator
