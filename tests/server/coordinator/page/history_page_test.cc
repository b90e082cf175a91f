#include "server/coordinator/page/history_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/coordinator/page/page_shell.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GetParameterHistoryResponse History(int samples) {
  v1::GetParameterHistoryResponse history;
  history.mutable_placement()->set_parameter_id(7);
  history.mutable_history()->set_every_steps(10);
  for (int i = 0; i < samples; ++i) {
    v1::ParameterSample& sample = *history.mutable_history()->add_samples();
    sample.set_step(1 + 10 * i);
    sample.set_weight_norm(2 + i % 3);
    sample.set_update_to_weight_ratio(0.001 * (1 + i % 5));
  }
  return history;
}

TEST(HistoryPageTest, DrawsWhatThereIs) {
  const std::string html = HistoryHtml("<b>", History(30));
  EXPECT_THAT(html, HasSubstr("<h2>&lt;b&gt;</h2>"));
  EXPECT_THAT(html, HasSubstr("A sample every 10 steps"));
  EXPECT_THAT(html, HasSubstr("/parameter.csv?id=7"));
  EXPECT_THAT(html, HasSubstr("Update / weight"));
  EXPECT_THAT(html, Not(HasSubstr("Stable rank")));
}

TEST(HistoryPageTest, SaysThatThereAreNoSamples) {
  EXPECT_THAT(HistoryHtml("w", History(0)), HasSubstr("No samples."));
  EXPECT_THAT(HistoryProblemHtml("shard <1>"), HasSubstr("shard &lt;1&gt;"));
}

TEST(HistoryPageTest, IsSmallWithManySamples) {
  EXPECT_LT(PageResponse("t", "j", HistoryHtml("w", History(50000))).body.size(), 200000u);
}

}  // namespace
}  // namespace kaon::coordinator
