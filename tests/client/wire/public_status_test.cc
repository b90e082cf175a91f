#include "client/wire/public_status.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::client {
namespace {

TEST(PublicStatusTest, KeepsEveryCodeAndItsName) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "shard 1: why");
    const kaon::Status result = ToPublic(status);
    EXPECT_EQ(static_cast<int>(result.code()), code);
    EXPECT_EQ(NameOf(result.code()), absl::StatusCodeToString(status.code()));
    EXPECT_EQ(result.message(), "shard 1: why");
  }
}

TEST(PublicStatusTest, OkHasNoMessage) {
  EXPECT_TRUE(ToPublic(absl::OkStatus()).ok());
  EXPECT_EQ(ToPublic(absl::OkStatus()).message(), "");
}

}  // namespace
}  // namespace kaon::client
