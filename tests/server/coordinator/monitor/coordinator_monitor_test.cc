#include "server/coordinator/monitor/coordinator_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/monitor/metrics/http_client.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

class CoordinatorMonitorTest : public testing::Test {
 protected:
  CoordinatorMonitorTest() : loop_([](SendToShard) {}) {
    queries_ = std::make_unique<ClusterQueries>(loop_, links_, std::vector<std::string>(), *keeper_,
                                                health_, counts_, times_);
    StepMachineOptions options;
    options.address = "127.0.0.1:1";
    options.shard_addresses = {"127.0.0.1:2"};
    loop_.Start(std::move(options));
    v1::CoordinatorConfig config;
    config.set_metrics_address("127.0.0.1:0");
    auto monitor = CoordinatorMonitor::Start(config, {loop_, meter_, *queries_, counts_, health_});
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    monitor_ = *std::move(monitor);
  }
  ~CoordinatorMonitorTest() override {
    loop_.Stop();
    monitor_->Stop();
  }

  std::string Scrape() { return metrics::Fetch(monitor_->port(), "/metrics"); }
  // Scrapes until the page has the text.
  void Await(const std::string& text) {
    while (Scrape().find(text) == std::string::npos) {
    }
  }

  MachineLoop loop_;
  JobMeter meter_;
  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.Coordinator"};
  DecisionTimes times_;
  ClusterQueries::ShardLinks links_;
  std::unique_ptr<CheckpointKeeper> keeper_ = CheckpointKeeper::Create("").value();
  std::unique_ptr<ClusterQueries> queries_;
  std::unique_ptr<CoordinatorMonitor> monitor_;
};

TEST_F(CoordinatorMonitorTest, ServesWhatTheMachineTells) {
  Await("kaon_coordinator_holder 0\n");
  const std::string page = Scrape();
  EXPECT_EQ(metrics::StatusOf(page), 200);
  EXPECT_THAT(page, HasSubstr("kaon_job_running 0\n"));
  EXPECT_THAT(page, HasSubstr("kaon_job_steps_total{outcome=\"applied\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("kaon_serving 1\n"));
}

TEST_F(CoordinatorMonitorTest, OpensThePageByTheLinkThatItPrints) {
  testing::internal::CaptureStdout();
  v1::CoordinatorConfig config;
  config.set_metrics_address("127.0.0.1:0");
  const auto monitor =
      CoordinatorMonitor::Start(config, {loop_, meter_, *queries_, counts_, health_});
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const std::string printed = testing::internal::GetCapturedStdout();
  const std::string link =
      absl::StrCat("status page: http://127.0.0.1:", (*monitor)->port(), "/?token=");
  ASSERT_EQ(printed.substr(0, link.size()), link);
  const std::string token = printed.substr(link.size(), printed.size() - link.size() - 1);
  EXPECT_EQ(token.size(), 48u);
  EXPECT_EQ(metrics::StatusOf(metrics::Fetch((*monitor)->port(), "/?token=" + token)), 303);
  EXPECT_EQ(metrics::StatusOf(metrics::Fetch((*monitor)->port(), "/")), 401);
}

TEST_F(CoordinatorMonitorTest, LeavesNothingInTheLoopIfItDoesNotStart) {
  v1::CoordinatorConfig config;
  config.set_metrics_address("127.0.0.1:0");
  config.set_metrics_port_file("/no/such/folder/port");
  monitor_->Stop();
  // Returns how many events fit in the queue while the loop is held.
  const auto room = [this, &config](bool starts) {
    std::promise<void> held;
    std::promise<void> release;
    loop_.PostAlways([&held, &release](StepMachine&, absl::Time) {
      held.set_value();
      release.get_future().wait();
    });
    held.get_future().wait();
    if (starts) {
      const auto monitor =
          CoordinatorMonitor::Start(config, {loop_, meter_, *queries_, counts_, health_});
      EXPECT_EQ(monitor.status().code(), absl::StatusCode::kUnavailable) << monitor.status();
    }
    int events = 0;
    while (loop_.Post([](StepMachine&, absl::Time) {}).ok()) ++events;
    release.set_value();
    std::promise<void> empty;
    loop_.PostAlways([&empty](StepMachine&, absl::Time) { empty.set_value(); });
    empty.get_future().wait();
    return events;
  };
  const int all = room(false);
  EXPECT_EQ(room(true), all);
}

TEST_F(CoordinatorMonitorTest, AnswersWhileTheMachineIsHeld) {
  Await("kaon_coordinator_holder ");
  std::promise<void> held;
  std::promise<void> release;
  loop_.PostAlways([&held, &release](StepMachine&, absl::Time) {
    held.set_value();
    release.get_future().wait();
  });
  held.get_future().wait();
  EXPECT_THAT(Scrape(), HasSubstr("kaon_coordinator_holder "));
  release.set_value();
}

}  // namespace
}  // namespace kaon::coordinator
