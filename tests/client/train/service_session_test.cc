#include "client/train/service_session.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/testing/fake_cluster.h"

namespace kaon::train {
namespace {

// Covers errors before a job is registered. tests/integration covers a session that trains.
class ServiceSessionTest : public ::testing::Test {
 protected:
  absl::Status Create() { return ServiceSession::Create(options_, gate_).status(); }

  ServiceSessionOptions options_;
  const std::atomic<bool> signalled_{false};
  StopGate gate_{signalled_};
};

TEST_F(ServiceSessionTest, KeepsTheCodeOfARefusalToConnect) {
  options_.client.coordinators = {"192.0.2.1:7700"};
  EXPECT_EQ(Create().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServiceSessionTest, KeepsTheCodeOfARefusedJob) {
  const testing::FakeCluster cluster;
  options_.client.coordinators = {cluster.address()};
  options_.job.name = "Not A Name";
  EXPECT_EQ(Create().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::train
