#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/kaon/client.h"

namespace kaon {
namespace {

using ::testing::HasSubstr;

TEST(ClientOptionsTest, AreCheckedAtConnect) {
  ClientOptions options;
  EXPECT_THAT(Client::Connect(options).status().message(), HasSubstr("coordinators"));
  options.coordinators = {"127.0.0.1:1"};
  options.max_bytes_in_flight = 10;
  EXPECT_THAT(Client::Connect(options).status().message(),
              HasSubstr("max_bytes_in_flight is 10, must be >= 1048576"));
  options.max_bytes_in_flight = 1 << 20;
  for (const uint32_t lanes : {0, 5}) {
    options.lanes = lanes;
    EXPECT_EQ(Client::Connect(options).status().message(),
              "lanes is " + std::to_string(lanes) + ", must be 1 .. 4");
  }
  options.lanes = 4;
  options.coordinators = {"192.0.2.1:1"};
  EXPECT_EQ(Client::Connect(options).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kaon
