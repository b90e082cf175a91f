#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "client/kaon/client.h"
#include "tests/server/auth/certificates.h"

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
  options.wait_log_interval = std::chrono::milliseconds(0);
  EXPECT_EQ(Client::Connect(options).status().message(), "wait_log_interval is 0 ms, must be > 0");
  options.wait_log_interval = std::chrono::milliseconds(1);
  options.coordinators = {"127.0.0.1:1", " 127.0.0.1:2"};
  EXPECT_THAT(Client::Connect(options).status().message(),
              HasSubstr("address ' 127.0.0.1:2' is not host:port"));
  options.coordinators = {"192.0.2.1:1"};
  EXPECT_EQ(Client::Connect(options).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ClientOptionsTest, CertificatesAreCheckedAtConnect) {
  const testing::Certificates certificates("");
  ClientOptions options;
  options.coordinators = {"127.0.0.1:1"};
  options.call_deadline = std::chrono::milliseconds(1);
  options.tls = certificates.Client("worker-0");
  EXPECT_EQ(Client::Connect(options).status().code(), StatusCode::kDeadlineExceeded);
  options.tls.private_key = certificates.Client("worker-1").private_key;
  EXPECT_THAT(Client::Connect(options).status().message(),
              HasSubstr("worker-1.key' is not the key of certificate file"));
  options.tls = certificates.Client("coordinator");
  EXPECT_THAT(Client::Connect(options).status().message(),
              HasSubstr("is for role coordinator, must be for worker or reader or admin"));
}

}  // namespace
}  // namespace kaon
