#include "server/coordinator/page/curve_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

Curves TwoSteps() {
  Curves curves;
  curves.groups = {"matrices", "rest"};
  for (uint64_t step : {1, 2}) {
    StepPoint& point = curves.points.emplace_back();
    point.position = step + 2;
    point.step = step;
    point.loss = 2.5;
    point.loss_scale = 1;
    point.unix_millis = static_cast<int64_t>(step) * 500;
    point.groups.resize(2);
    point.groups[0].norm = 4;
    point.groups[0].clip_factor = 0.5;
    point.groups[1].rate = 0.125;
  }
  curves.points[1].skipped = true;
  curves.points[1].reason = "=overflow, of \"w\"";
  curves.points[1].loss.reset();
  curves.ratios.push_back({"rest", "bias", {{1, 0.001}}});
  return curves;
}

TEST(CurveSectionTest, HasAChartOfEachKind) {
  const std::string html = CurvesHtml(TwoSteps());
  for (const char* const title : {"Loss", "Gradient norm", "Clip factor", "Learning rate",
                                  "Update / weight", "Seconds per step"}) {
    EXPECT_THAT(html, HasSubstr(std::string("<b>") + title + "</b>"));
  }
  EXPECT_THAT(html, HasSubstr("skipped steps <b>1</b>"));
  EXPECT_THAT(html, HasSubstr("rest: bias <b>0.001</b>"));
  EXPECT_THAT(html, HasSubstr("seconds <b>0.5</b>"));
}

TEST(CurveSectionTest, WritesCsv) {
  EXPECT_EQ(CurvesCsv(TwoSteps()),
            "position,step,outcome,reason,unix_millis,loss,grad_norm,loss_scale,"
            "matrices grad_norm,matrices clip_factor,matrices learning_rate,"
            "rest grad_norm,rest clip_factor,rest learning_rate\r\n"
            "3,1,apply,,500,2.5,,1,4,0.5,,,,0.125\r\n"
            "4,2,skip,\"'=overflow, of \"\"w\"\"\",1000,,,1,4,0.5,,,,0.125\r\n");
}

}  // namespace
}  // namespace kaon::coordinator
