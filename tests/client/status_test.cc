#include "client/kaon/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace kaon {
namespace {

TEST(StatusTest, IsOkUnlessSaidOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().ToString(), "OK");
}

TEST(StatusTest, PrintsCodeAndMessage) {
  EXPECT_EQ(Status(StatusCode::kDataLoss, "shard 1").ToString(), "DATA_LOSS: shard 1");
}

TEST(StatusTest, SaysWhatCanBeTriedAgain) {
  for (StatusCode code :
       {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded, StatusCode::kResourceExhausted}) {
    EXPECT_TRUE(Status(code, "").retriable()) << NameOf(code);
  }
  for (StatusCode code : {StatusCode::kOk, StatusCode::kInvalidArgument, StatusCode::kAborted,
                          StatusCode::kDataLoss, StatusCode::kPermissionDenied}) {
    EXPECT_FALSE(Status(code, "").retriable()) << NameOf(code);
  }
}

TEST(ResultTest, HoldsAValueThatCanBeMovedOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(ResultTest, HoldsTheReasonThereIsNone) {
  const Result<int> result(Status(StatusCode::kNotFound, "job 'run'"));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
}

TEST(ResultTest, IsTrueWithAValueAndReadAsConst) {
  const Result<std::string> there(std::string("there"));
  const Result<std::string> missing(Status(StatusCode::kNotFound, "job 'run'"));
  EXPECT_TRUE(there);
  EXPECT_FALSE(missing);
  EXPECT_EQ(*there, "there");
  EXPECT_EQ(there->size(), 5u);
  EXPECT_EQ(there.value(), "there");
  EXPECT_FALSE((std::is_convertible_v<Result<std::string>, bool>));
}

TEST(ResultDeathTest, ValueOfAFailureEndsTheProcessWithTheReason) {
  Result<int> result(Status(StatusCode::kNotFound, "job 'run'"));
  EXPECT_DEATH(result.value(), "NOT_FOUND: job 'run'");
}

}  // namespace
}  // namespace kaon
