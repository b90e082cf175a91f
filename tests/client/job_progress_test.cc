#include "client/job_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "client/job_context.h"
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

// Another thread takes the loop's lock all the time, so that some of the forks come while that
// thread holds it.
TEST(JobProgressTest, RefusesAtOnceInAForkedChild) {
  ClientOptions options;
  options.coordinators = {"127.0.0.1:1"};
  v1::JobDescription description;
  description.mutable_definition()->set_name("small");
  const std::shared_ptr<client::Runtime> runtime = client::Runtime::Create(options).value();
  const auto job = client::JobContext::Create(runtime, description).value();
  std::atomic<bool> over = false;
  std::thread busy([&] {
    while (!over) runtime->loop().Cancel({});
  });
  int status = 0;
  for (int i = 0; i < 20 && status == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      // Ends a child that hangs.
      alarm(60);
      const absl::Status refused = client::WaitForWeights(*job, absl::ZeroDuration()).status();
      _exit(absl::IsFailedPrecondition(refused) ? 0 : 1);
    }
    EXPECT_EQ(waitpid(child, &status, 0), child);
  }
  over = true;
  busy.join();
  EXPECT_EQ(status, 0) << "a child hung or had another status";
}

}  // namespace
}  // namespace kaon
