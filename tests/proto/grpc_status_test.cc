#include "proto/grpc_status.h"

#include <gtest/gtest.h>

namespace kaon::proto {
namespace {

TEST(GrpcStatusTest, KeepsEveryCodeAndMessageBothWays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "shard 7: why");
    const grpc::Status sent = ToGrpc(status);
    EXPECT_EQ(sent.error_code(), code);
    EXPECT_EQ(sent.error_message(), "shard 7: why");
    EXPECT_EQ(FromGrpc(sent), status);
  }
}

TEST(GrpcStatusTest, AStatusThatNoServerMadeIsALostConnection) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL}) {
    const absl::Status lost = FromGrpc(grpc::Status(code, "Stream removed"));
    EXPECT_EQ(lost, absl::UnavailableError("connection lost: Stream removed"));
    EXPECT_TRUE(IsConnectionLost(lost));
  }
  EXPECT_FALSE(IsConnectionLost(FromGrpc(ToGrpc(absl::UnavailableError("step 1 is not planned")))));
  EXPECT_EQ(FromGrpc(grpc::Status(grpc::StatusCode::CANCELLED, "by the caller")),
            absl::CancelledError("by the caller"));
}

TEST(GrpcStatusTest, SaysOnceWhyItCouldNotConnect) {
  const absl::Status lost = FromGrpc(grpc::Status(
      grpc::StatusCode::UNAVAILABLE,
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:7: refused"));
  EXPECT_EQ(lost, absl::UnavailableError("connection lost: ipv4:10.0.0.1:7: refused"));
}

TEST(GrpcStatusTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace kaon::proto
