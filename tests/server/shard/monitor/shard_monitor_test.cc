#include "server/shard/monitor/shard_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/steady_clock.h"
#include "server/journal/memory_journal.h"
#include "server/shard/shard_files.h"
#include "tests/server/monitor/metrics/http_client.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

using ::testing::HasSubstr;

class ShardMonitorTest : public testing::Test {
 protected:
  ShardMonitorTest() : journal_(nullptr) {
    ShardCore::Options options;
    options.store = &memory_.store();
    options.backend = &memory_.backend();
    options.staging_bytes = 4 << 20;
    loop_ = std::make_unique<StepLoop>(options, ShardFiles(), counts_, health_);
    loop_->Start(journal_, nullptr, nullptr);
    config_.set_data_dir(testing::TempDir());
    config_.set_metrics_address("127.0.0.1:0");
    auto monitor = ShardMonitor::Start(config_, *loop_, counts_, health_);
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    monitor_ = *std::move(monitor);
  }
  ~ShardMonitorTest() override {
    loop_->Stop();
    monitor_->Stop();
  }

  std::string Scrape() { return metrics::Fetch(monitor_->port(), "/metrics"); }
  // Returns the time that 99 of 100 scrapes need at most.
  absl::Duration ScrapeP99() {
    std::vector<absl::Duration> times;
    for (int i = 0; i < 300; ++i) {
      const absl::Time start = SteadyNow();
      EXPECT_EQ(metrics::StatusOf(Scrape()), 200);
      times.push_back(SteadyNow() - start);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  }
  // Scrapes until the page has the text.
  std::string Await(const std::string& text) {
    std::string page = Scrape();
    while (page.find(text) == std::string::npos) page = Scrape();
    return page;
  }

  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.ShardData"};
  ShardMemory memory_{1 << 16};
  journal::MemoryJournal journal_;
  v1::ShardConfig config_;
  std::unique_ptr<StepLoop> loop_;
  std::unique_ptr<ShardMonitor> monitor_;
};

TEST_F(ShardMonitorTest, ServesWhatTheShardTells) {
  counts_.AddBytes(monitor::Transfer::kPushed, 12);
  const std::string page = Await("kaon_shard_info{");
  EXPECT_EQ(metrics::StatusOf(page), 200);
  EXPECT_THAT(page, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(page, HasSubstr("kaon_shard_pushed_bytes_total 12\n"));
  EXPECT_THAT(page, HasSubstr("kaon_values_age_seconds "));
  EXPECT_THAT(page, HasSubstr("process_resident_memory_bytes "));
  Await("kaon_shard_disk_free_bytes ");
}

// An update may take seconds. The bound of 5 ms is that of a quiet machine; a busy one is compared
// with itself.
TEST_F(ShardMonitorTest, AScrapeDuringALongApplyIsAsFastAsAnyOther) {
  Await("kaon_shard_info{");
  const absl::Duration usual = ScrapeP99();
  std::promise<void> held;
  std::promise<void> release;
  loop_->Describe("", [&held, &release](const absl::StatusOr<v1::DescribeShardResponse>&) {
    held.set_value();
    release.get_future().wait();
  });
  held.get_future().wait();
  const absl::Duration during = ScrapeP99();
  const std::string page = Scrape();
  const absl::Duration after = [&] {
    release.set_value();
    return ScrapeP99();
  }();
  EXPECT_THAT(page, HasSubstr("kaon_shard_info{"));
  std::cout << "scrape p99: before " << usual << ", during " << during << ", after " << after
            << "\n";
  EXPECT_LE(during, std::max(absl::Milliseconds(5), 5 * std::max(usual, after)));
}

}  // namespace
}  // namespace kaon::shard
