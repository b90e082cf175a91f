#include "server/coordinator/page/parameter_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/page/page_shell.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::ListParametersResponse Page(int rows, const std::string& name) {
  v1::ListParametersResponse page;
  for (int i = 0; i < rows; ++i) {
    v1::ParameterRow& row = *page.add_parameters();
    row.mutable_spec()->set_name(name);
    row.mutable_spec()->add_shape(4096);
    row.mutable_spec()->add_shape(128);
    row.mutable_placement()->set_group("matrices");
    row.mutable_placement()->set_route_reason(std::string(200, 'r'));
    row.set_rule(v1::RULE_MUON);
    row.mutable_state()->set_newton_schulz_updates(12);
    row.mutable_state()->set_tier("cpu");
  }
  return page;
}

TEST(ParameterPageTest, ShowsRoutes) {
  v1::ListParametersResponse page = Page(1, "<img src=x>");
  page.set_next_page_token("150");
  const std::string html = ParametersHtml(page, "a\"&b", "");
  EXPECT_THAT(
      html,
      HasSubstr(
          "<a href=\"/parameter?id=0\">&lt;img src=x&gt;</a></th><td>muon</td><td>matrices</td>"));
  EXPECT_THAT(html, HasSubstr("<td>4096 x 128</td>"));
  EXPECT_THAT(html, HasSubstr("value=\"a&quot;&amp;b\""));
  EXPECT_THAT(html, HasSubstr("/parameters?q=a%22%26b&amp;first=150\" rel=\"next\""));
  EXPECT_THAT(html, Not(HasSubstr("First page")));
  EXPECT_THAT(ParametersHtml(Page(0, ""), "", "150"), HasSubstr("First page"));
}

TEST(ParameterPageTest, IsSmallWithTheLongestNames) {
  const std::string html = ParametersHtml(Page(kParametersOfPage, std::string(512, 'n')), "", "");
  EXPECT_LE(PageResponse("t", "j", html).body.size(), 200000u);
}

TEST(ParameterPageTest, ShowsAProblem) {
  EXPECT_THAT(ParametersProblemHtml("missing )", "("), HasSubstr("class=\"bad\">missing )</p>"));
}

TEST(ParameterPageTest, WritesCsv) {
  v1::ListParametersResponse page = Page(1, "=w");
  page.mutable_parameters(0)->mutable_placement()->set_route_reason("default");
  EXPECT_EQ(ParametersCsvRows(page), "0,'=w,muon,matrices,0,4096 x 128,cpu,0,0,12,default\r\n");
  page.mutable_parameters(0)->clear_state();
  EXPECT_EQ(ParametersCsvRows(page), "0,'=w,muon,matrices,0,4096 x 128,,,,,default\r\n");
}

}  // namespace
}  // namespace kaon::coordinator
