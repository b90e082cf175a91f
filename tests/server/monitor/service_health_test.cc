#include "server/monitor/service_health.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kaon::monitor {
namespace {

// Records its calls.
class NotedHealth : public grpc::HealthCheckServiceInterface {
 public:
  void SetServingStatus(const std::string& service, bool serving) override {
    said.push_back(service + (serving ? " serves" : " does not serve"));
  }
  void SetServingStatus(bool /*serving*/) override { said.push_back("all"); }

  std::vector<std::string> said;
};

TEST(ServiceHealthTest, IsToldWhenItChangesAndOnlyThen) {
  NotedHealth noted;
  ServiceHealth health("kaon.v1.X");
  health.ShowIn(&noted);
  health.SetReason("journal", "");
  EXPECT_TRUE(health.serving());
  health.SetReason("journal", "no room");
  health.SetReason("journal", "still no room");
  EXPECT_FALSE(health.serving());
  health.SetReason("journal", "");
  EXPECT_EQ(noted.said, (std::vector<std::string>{"kaon.v1.X serves", "kaon.v1.X does not serve",
                                                  "kaon.v1.X serves"}));
}

TEST(ServiceHealthTest, ServesOnlyWithoutAnyCause) {
  ServiceHealth health("kaon.v1.X");
  health.SetReason("journal", "no room");
  health.SetReason("snapshots", "no room");
  health.SetReason("journal", "");
  EXPECT_FALSE(health.serving());
  health.SetReason("snapshots", "");
  EXPECT_TRUE(health.serving());
}

TEST(ServiceHealthTest, ShowsWhatWasSoBeforeThereWasAServer) {
  NotedHealth noted;
  ServiceHealth health("kaon.v1.X");
  health.SetReason("state", "lost");
  health.ShowIn(&noted);
  EXPECT_EQ(noted.said, std::vector<std::string>{"kaon.v1.X does not serve"});
  // The service that showed the health may be gone.
  health.ShowIn(nullptr);
  health.SetReason("state", "");
  EXPECT_EQ(noted.said.size(), 1u);
}

}  // namespace
}  // namespace kaon::monitor
