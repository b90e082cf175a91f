#include "proto/text.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace kaon::proto {
namespace {

TEST(TextTest, AnExcerptHasAtMost100CharactersAndNothingThatATerminalActsOn) {
  EXPECT_EQ(Excerpt("layer1.w"), "layer1.w");
  EXPECT_EQ(Excerpt(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(Excerpt(std::string(9000, 'x')),
            absl::StrCat(std::string(100, 'x'), "... of 9000 bytes"));
  EXPECT_EQ(Excerpt("a\x1b[2J\"\n\xff"), "a\\x1b[2J\\\"\\n\\xff");
}

TEST(TextTest, AMessageBecomesOneLineThatFitsIntoMetadata) {
  EXPECT_EQ(OneLine("group is \"a\", 100 %"), "group is \"a\", 100 %");
  EXPECT_EQ(OneLine("a\nb\x1b"), "a\\nb\\x1b");
  EXPECT_LE(OneLine(std::string(1 << 20, '\n')).size(), 2100u);
}

TEST(TextTest, ADecimalIsDigitsAlone) {
  uint64_t number = 7;
  EXPECT_TRUE(ParseDecimal("0", &number));
  EXPECT_EQ(number, 0u);
  EXPECT_TRUE(ParseDecimal("18446744073709551615", &number));
  EXPECT_TRUE(ParseDecimal("065535", &number, 65535));
  EXPECT_FALSE(ParseDecimal("65536", &number, 65535));
  for (const char* text :
       {"", " 0", "0 ", "+0", "-0", "0x1", "1e1", "1_0", "\n1", "18446744073709551616"}) {
    EXPECT_FALSE(ParseDecimal(text, &number)) << '"' << text << '"';
  }
}

}  // namespace
}  // namespace kaon::proto
