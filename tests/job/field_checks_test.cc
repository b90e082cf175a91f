#include "job/field_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kaon/v1/parameters.pb.h"

namespace kaon::job {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(FieldChecksTest, NamesHaveAnAlphabetAndALength) {
  EXPECT_TRUE(CheckName("f", "a-b_9").ok());
  EXPECT_TRUE(CheckName("f", std::string(64, 'x')).ok());
  for (const std::string& bad :
       {std::string(), std::string(65, 'x'), std::string("A"), std::string("a b")}) {
    EXPECT_EQ(CheckName("f", bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_TRUE(CheckJobName("f", std::string(63, 'x')).ok());
  EXPECT_FALSE(CheckJobName("f", std::string(64, 'x')).ok());
  EXPECT_EQ(Message(CheckJobName("name", "a_b")), "name is \"a_b\", must match [a-z0-9-]{1,63}");
}

TEST(FieldChecksTest, RangesIncludeTheirEndsAndNoNan) {
  EXPECT_TRUE(CheckRange("f", 0, 0, 1).ok());
  EXPECT_TRUE(CheckRange("f", 1, 0, 1).ok());
  EXPECT_EQ(Message(CheckRange("f", 1.5, 0, 1)), "f is 1.5, must be 0 .. 1");
  EXPECT_FALSE(CheckRange("f", std::numeric_limits<double>::quiet_NaN(), 0, 1).ok());
  EXPECT_TRUE(CheckCount("f", 3, 3, 3).ok());
  EXPECT_EQ(Message(CheckCount("f", 2, 3, 4)), "f is 2, must be 3 .. 4");
  EXPECT_TRUE(CheckFactor("f", kMaxFloat).ok());
  EXPECT_FALSE(CheckFactor("f", 2 * kMaxFloat).ok());
  EXPECT_FALSE(CheckFactor("f", -0.1).ok());
}

TEST(FieldChecksTest, EnumsAreSetAndKnownAtAnyDepth) {
  v1::MatrixLayout layout;
  EXPECT_THAT(Message(CheckEnums("at: ", layout)),
              HasSubstr("at: kind is unset, must be one of matrix"));
  v1::RoutingRule rule;
  EXPECT_TRUE(CheckEnums("", rule).ok());
  rule.mutable_layout()->set_kind(static_cast<v1::MatrixLayoutKind>(99));
  EXPECT_THAT(Message(CheckEnums("", rule)), HasSubstr("layout.kind is 99, must be one of matrix"));
  rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  EXPECT_TRUE(CheckEnums("", rule).ok());
}

}  // namespace
}  // namespace kaon::job
