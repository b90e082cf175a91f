#include "client/job_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/client/client_fixture.h"

namespace kaon {
namespace {

using std::chrono::milliseconds;

TEST_F(ClientTest, WaitsForTheWeightsOfAnotherRank) {
  EXPECT_EQ(job_.WaitForWeights(milliseconds(0)).status().message(),
            "waited 0 for weights of job small: rank 0 loads them");
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  std::thread other([&] { EXPECT_TRUE(step.Finish().Get()); });
  EXPECT_EQ(job_.WaitForWeights(milliseconds(20000)).value(), 1u);
  other.join();
}

}  // namespace
}  // namespace kaon
