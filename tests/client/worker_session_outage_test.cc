// While no server answers, a session makes a bounded number of calls, at times that differ between
// workers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "client/worker_session.h"
#include "tests/client/worker_session_fixture.h"

namespace kaon::client {
namespace {

absl::Status Away() { return absl::UnavailableError("away"); }

struct Calls {
  std::vector<absl::Time> coordinator;
  // Pushes by shard.
  std::map<uint32_t, std::vector<absl::Time>> pushes;
};

// Far more than any outage here may cost.
constexpr int kTooManyWakeUps = 20000;

// Fails every call immediately from `now` on, until `outage` has passed.
Calls Endure(WorkerSession& session, absl::Time now, absl::Duration outage) {
  const absl::Time end = now + outage;
  Calls calls;
  std::multiset<absl::Time> wake_ups;
  for (int i = 0; i < kTooManyWakeUps && now < end; ++i) {
    for (auto actions = session.TakeActions(); !actions.empty(); actions = session.TakeActions()) {
      for (const SessionAction& action : actions) {
        if (const auto* join = std::get_if<CallJoin>(&action)) {
          calls.coordinator.push_back(now);
          session.OnJoin(join->call, Away(), "", now);
        } else if (const auto* push = std::get_if<StartPush>(&action)) {
          calls.pushes[push->shard].push_back(now);
          session.OnPushEnded(push->call, push->shard, Away(), now);
        } else if (const auto* wake = std::get_if<WakeAt>(&action)) {
          wake_ups.insert(wake->at);
        }
      }
    }
    if (wake_ups.empty()) break;
    now = *wake_ups.begin();
    wake_ups.erase(wake_ups.begin());
    session.Tick(now);
  }
  return calls;
}

// Bound: one call at once, one for each doubling of the delay, then at most two per largest delay.
size_t MostCalls(absl::Duration first, absl::Duration max, absl::Duration outage) {
  const double doublings = std::ceil(std::log2(absl::FDivDuration(max, first)));
  return 1 + static_cast<size_t>(doublings + std::floor(2 * absl::FDivDuration(outage, max)));
}

using WorkerSessionOutageTest = WorkerSessionTest;

TEST_F(WorkerSessionOutageTest, TheNumberOfCallsIsBounded) {
  const WorkerSessionOptions options = Options();
  for (const int64_t ms : {50, 1000, 600000}) {
    const absl::Duration outage = absl::Milliseconds(ms);
    const std::vector<StartPush> pushes = ReachPush();
    session_.OnAwaitEnded(await_, Away(), "", now_);
    for (const StartPush& push : pushes) {
      session_.OnPushEnded(push.call, push.shard, Away(), now_);
    }
    Calls calls = Endure(session_, now_, outage);
    const size_t least = static_cast<size_t>(absl::FDivDuration(outage, options.max_backoff));
    EXPECT_LE(calls.coordinator.size(),
              MostCalls(options.first_backoff, options.max_backoff, outage));
    EXPECT_GE(calls.coordinator.size(), least);
    for (const uint32_t shard : {0, 1}) {
      EXPECT_LE(calls.pushes[shard].size(),
                MostCalls(options.first_push_backoff, options.max_backoff, outage));
      EXPECT_GE(calls.pushes[shard].size(), least);
    }
    now_ += outage + options.max_backoff;
    session_.Abandon();
    session_.TakeActions();
  }
}

TEST_F(WorkerSessionOutageTest, WorkersDoNotComeBackAtTheSameTime) {
  constexpr size_t kWorkers = 50;
  std::set<absl::Time> last;
  for (size_t seed = 0; seed < kWorkers; ++seed) {
    WorkerSessionOptions options = Options();
    options.jitter_seed = seed;
    WorkerSession session(options);
    session.Begin({7, 10, 1, 1}, now_);
    const Calls calls = Endure(session, now_, absl::Minutes(1));
    ASSERT_FALSE(calls.coordinator.empty());
    last.insert(calls.coordinator.back());
  }
  EXPECT_EQ(last.size(), kWorkers);
  // The last calls spread over more than half of the largest delay.
  EXPECT_GT(*last.rbegin() - *last.begin(), Options().max_backoff / 2);
}

TEST_F(WorkerSessionTest, SaysWhatItWaitsFor) {
  EXPECT_EQ(session_.WaitsFor(), "");
  session_.Join(now_);
  session_.OnJoin(Only<CallJoin>().call, Away(), "", now_);
  EXPECT_EQ(session_.WaitsFor(), "coordinator b:1 to let it join; last error: UNAVAILABLE: away");
  session_.Abandon();
  (void)session_.TakeActions();
  await_ = ReachAwait();
  EXPECT_EQ(session_.WaitsFor(), "the plan of coordinator b:1: every rank must begin the step");
  session_.OnEvent(await_, Plan(4, 1), now_);
  const std::vector<StartPush> pushes = All<StartPush>();
  session_.OnPushEnded(pushes.at(0).call, 0, absl::OkStatus(), now_);
  session_.OnPushEnded(pushes.at(1).call, 1, Away(), now_);
  EXPECT_EQ(session_.WaitsFor({0, 1}), "gradients to reach shard 1; last error: UNAVAILABLE: away");
  session_.Tick(now_ + absl::Seconds(1));
  session_.OnPushEnded(Only<StartPush>().call, 1, absl::OkStatus(), now_);
  EXPECT_EQ(session_.WaitsFor({0, 1}),
            "the decision of coordinator b:1: every rank must push its gradients");
}

}  // namespace
}  // namespace kaon::client
