#include "server/monitor/metrics/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "proto/version.h"

namespace kaon::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProcessMetricsTest : public testing::Test {
 protected:
  std::string Text() {
    MetricPage page;
    AddProcess(tls_, counts_, health_, page);
    return page.Text();
  }
  double Value(const std::string& name) {
    const std::string text = Text();
    const size_t at = text.find("\n" + name + " ");
    double value = -1;
    if (at == std::string::npos) return value;
    const size_t begin = at + name.size() + 2;
    EXPECT_TRUE(absl::SimpleAtod(text.substr(begin, text.find('\n', begin) - begin), &value));
    return value;
  }

  v1::TlsConfig tls_;
  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.ShardData"};
};

TEST_F(ProcessMetricsTest, TellsOfTheProcess) {
  EXPECT_GT(Value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_LT(Value("process_resident_memory_bytes"), 1e12);
  EXPECT_GT(Value("process_cpu_seconds_total"), 0);
  EXPECT_GT(Value("process_open_fds"), 2);
  EXPECT_GT(Value("process_max_fds"), Value("process_open_fds"));
  const double now = static_cast<double>(absl::ToUnixSeconds(absl::Now()));
  EXPECT_NEAR(Value("process_start_time_seconds"), now, 3600);
  EXPECT_THAT(Text(), HasSubstr("version=\"" + proto::ThisVersion().version + "\""));
}

TEST_F(ProcessMetricsTest, TellsOfEventsAndHealth) {
  EXPECT_EQ(Value("kaon_serving"), 1);
  counts_.Add(monitor::Event::kPromise);
  counts_.Add(monitor::Event::kPushRefused, absl::StatusCode::kAborted);
  health_.SetReason("journal", "full");
  EXPECT_EQ(Value("kaon_serving"), 0);
  EXPECT_THAT(Text(), HasSubstr("kaon_events_total{event=\"promise\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("kaon_events_total{event=\"push_refused.aborted\"} 1\n"));
}

TEST_F(ProcessMetricsTest, LeavesOutACertificateThatIsNone) {
  const std::string path = testing::TempDir() + "/none.crt";
  std::ofstream(path) << "no certificate";
  EXPECT_EQ(CertificateExpiry(path).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(CertificateExpiry(path + ".missing").ok());
  tls_.set_certificate_file(path);
  EXPECT_THAT(Text(), Not(HasSubstr("kaon_certificate_expiry")));
}

// tests/integration/metrics_test.sh compares the time of a real certificate.

}  // namespace
}  // namespace kaon::metrics
