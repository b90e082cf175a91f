#include "server/coordinator/page/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(HtmlTest, EscapesWhatEndsATextOrAnAttribute) {
  EXPECT_EQ(Escape("<script>'a' & \"b\""), "&lt;script&gt;&#39;a&#39; &amp; &quot;b&quot;");
}

TEST(HtmlTest, DisarmsFieldsOfCsv) {
  EXPECT_EQ(CsvField("a.b"), "a.b");
  EXPECT_EQ(CsvField("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
  EXPECT_EQ(CsvField("=cmd|'/c calc'!A0"), "'=cmd|'/c calc'!A0");
  EXPECT_EQ(CsvField("-1+2"), "'-1+2");
}

TEST(HtmlTest, ShowsNumbers) {
  EXPECT_EQ(Number(0.000123456), "0.0001235");
  EXPECT_EQ(Number(std::nullopt), "-");
}

TEST(HtmlTest, MakesATableThatAScreenReaderReads) {
  HtmlTable table("Shards & more", {"Shard", "<State>"});
  EXPECT_EQ(table.Html(), "");
  table.AddRow({NumberCell("0"), TextCell("<b>")});
  const std::string html = table.Html();
  EXPECT_THAT(html, HasSubstr("<caption>Shards &amp; more</caption>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\" class=\"n\">Shard</th>"
                              "<th scope=\"col\">&lt;State&gt;</th>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\" class=\"n\">0</th><td>&lt;b&gt;</td>"));
}

TEST(HtmlTest, DrawsAMeterWithinItsRail) {
  EXPECT_THAT(MeterCell(1, 4, "1 of 4").html, HasSubstr("class=\"used\" width=\"25\""));
  EXPECT_THAT(MeterCell(9, 4, "9 of 4").html, HasSubstr("class=\"full\" width=\"100\""));
  EXPECT_EQ(MeterCell(1, 0, "1").html, "1");
}

}  // namespace
}  // namespace kaon::coordinator
