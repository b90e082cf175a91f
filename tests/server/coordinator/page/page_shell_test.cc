#include "server/coordinator/page/page_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string PolicyOf(const metrics::HttpResponse& response) {
  for (const auto& [name, value] : response.headers) {
    if (name == "Content-Security-Policy") return value;
  }
  return "";
}

TEST(PageShellTest, AllowsNothingFromElsewhere) {
  const metrics::HttpResponse page = PageResponse("t", "<job>", "main");
  EXPECT_THAT(page.body, HasSubstr("<h1>Kaon <span>&lt;job&gt;</span></h1>"));
  // Apart from the name of SVG, which nobody fetches.
  EXPECT_THAT(absl::StrReplaceAll(page.body, {{"http://www.w3.org/2000/svg", ""}}),
              Not(HasSubstr("http://")));
  EXPECT_THAT(page.body, Not(HasSubstr("https://")));
  // An attribute would break the policy.
  EXPECT_THAT(page.body, Not(HasSubstr(" style=")));
  EXPECT_THAT(page.body, Not(HasSubstr(" onclick=")));
  const std::string policy = PolicyOf(page);
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  const size_t at = policy.find("script-src 'nonce-") + 18;
  const std::string nonce = policy.substr(at, policy.find('\'', at) - at);
  EXPECT_EQ(nonce.size(), 32u);
  EXPECT_THAT(page.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_NE(policy, PolicyOf(PageResponse("t", "j", "main")));
}

TEST(PageShellTest, TriesAgainAfterARefusal) {
  // A browser gives up an event stream that was answered with an error.
  const std::string page = PageResponse("t", "j", "main").body;
  EXPECT_THAT(page, HasSubstr("if (event.target.readyState !== 2) return;"));
  EXPECT_THAT(page, HasSubstr("timer = setTimeout(open, 10000);"));
}

TEST(PageShellTest, HasEachSectionUnderAHeading) {
  Range range;
  range.from = 5;
  range.query = "?from=5&to=9";
  const std::string html =
      OverviewHtml({{"summary", "S"}, {"curves", "C"}}, range, absl::Seconds(75));
  EXPECT_THAT(html, HasSubstr("<h2 id=\"h-summary\">Now</h2><div id=\"summary\">S</div>"));
  EXPECT_THAT(html, HasSubstr("name=\"from\" min=\"1\" value=\"5\""));
  EXPECT_THAT(html, HasSubstr("name=\"to\" min=\"1\" value=\"\""));
  EXPECT_THAT(html, HasSubstr("/steps.csv?from=5&amp;to=9"));
  EXPECT_THAT(html, HasSubstr(">Values are 75 s old</span>"));
  EXPECT_EQ(AgeText(absl::Seconds(1)), "");
  EXPECT_EQ(AgeText(absl::InfiniteDuration()), "");
}

}  // namespace
}  // namespace kaon::coordinator
