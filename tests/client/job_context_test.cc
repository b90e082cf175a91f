#include "client/job_context.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/kaon/future.h"

namespace kaon::client {
namespace {

// Timelines, and the steps where they begin.
using Rewinds = std::vector<std::pair<uint64_t, uint64_t>>;

std::shared_ptr<const JobContext> JobInTimelineOne(
    std::function<void(uint64_t timeline, uint64_t step)> on_rewind) {
  ClientOptions options;
  options.coordinators = {"127.0.0.1:1"};
  options.on_rewind = std::move(on_rewind);
  v1::JobDescription description;
  description.mutable_definition()->set_name("small");
  description.set_timeline(1);
  return JobContext::Create(Runtime::Create(options).value(), description).value();
}

TEST(JobContextTest, TellsOfEachNewerTimelineOnce) {
  Rewinds heard;
  const auto job = JobInTimelineOne(
      [&heard](uint64_t timeline, uint64_t step) { heard.emplace_back(timeline, step); });
  job->NoteTimeline(1, 7);
  job->NoteTimeline(2, 5);
  job->NoteTimeline(2, 6);
  job->NoteTimeline(4, 3);
  job->NoteTimeline(3, 9);
  EXPECT_EQ(heard, (Rewinds{{2, 5}, {4, 3}}));
  EXPECT_EQ(job->timeline(), 4u);
}

// A caller that ends a step because of the news must wait while another thread is still reporting
// it.
TEST(JobContextTest, GoesOnOnlyWhenTheNewsAreTold) {
  const Promise<Done> telling, tell, told;
  const auto job = JobInTimelineOne([&](uint64_t, uint64_t) {
    telling.Set(Done());
    (void)tell.future().Get();
  });
  std::thread first([&] { job->NoteTimeline(2, 5); });
  ASSERT_TRUE(telling.future().Get().ok());
  std::thread second([&] {
    job->NoteTimeline(2, 5);
    told.Set(Done());
  });
  EXPECT_FALSE(told.future().WaitFor(std::chrono::milliseconds(100)));
  tell.Set(Done());
  EXPECT_TRUE(told.future().Get().ok());
  first.join();
  second.join();
}

}  // namespace
}  // namespace kaon::client
