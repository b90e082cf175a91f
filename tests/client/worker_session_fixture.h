// A worker's session whose calls the test answers by hand. One thread.
#ifndef KAON_TESTS_CLIENT_WORKER_SESSION_FIXTURE_H_
#define KAON_TESTS_CLIENT_WORKER_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/worker_session.h"

namespace kaon::client {

constexpr uint64_t kNonce = 77;

inline v1::Attempt AttemptOf(uint64_t counter, uint32_t number = 1) {
  v1::Attempt attempt;
  attempt.mutable_ballot()->set_counter(counter);
  attempt.set_number(number);
  return attempt;
}

inline Planned Plan(uint64_t counter, uint64_t round) {
  Planned planned;
  planned.ballot.set_counter(counter);
  planned.round = round;
  return planned;
}

inline v1::StepRecord RecordOf(uint64_t step) {
  v1::StepRecord record;
  record.mutable_plan()->mutable_step()->set_step(step);
  return record;
}

class WorkerSessionTest : public ::testing::Test {
 protected:
  WorkerSessionTest() : session_(Options()) {}

  static WorkerSessionOptions Options() {
    WorkerSessionOptions options;
    options.rank = 3;
    options.process_nonce = kNonce;
    options.coordinators = {"a:1", "b:1"};
    options.num_shards = 2;
    options.jitter_seed = 5;
    return options;
  }

  // Returns the only pending action of type T and drops the others.
  template <typename T>
  T Only() {
    std::vector<T> found = All<T>();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? T() : found[0];
  }

  template <typename T>
  std::vector<T> All() {
    std::vector<T> found;
    for (SessionAction& action : session_.TakeActions()) {
      if (T* wanted = std::get_if<T>(&action)) found.push_back(std::move(*wanted));
    }
    return found;
  }

  absl::Status StepError() {
    std::vector<StepOver> over = All<StepOver>();
    if (over.size() != 1) return absl::UnknownError("the step is not over");
    return over[0].record.status();
  }

  Joined JoinedAs(const v1::Attempt& attempt, uint64_t nonce = kNonce) {
    Joined joined;
    joined.attempt = attempt;
    joined.process_nonce = nonce;
    return joined;
  }

  // Acts as a coordinator: confirms the attempt that the worker presents, or allots one.
  void Allot(const CallJoin& join) {
    const v1::Attempt attempt =
        join.previous_attempt.has_value() ? *join.previous_attempt : AttemptOf(4, ++num_allotted_);
    session_.OnJoin(join.call, JoinedAs(attempt, join.process_nonce), "", now_);
  }

  // Begins step 7 and opens its Await; returns the await call.
  uint64_t ReachAwait() {
    session_.Begin({7, 10, 1, 1}, now_);
    std::vector<SessionAction> actions = session_.TakeActions();
    while (const auto* join = std::get_if<CallJoin>(&actions.at(0))) {
      Allot(*join);
      actions = session_.TakeActions();
    }
    session_.OnBegin(std::get<CallBegin>(actions.at(0)).call, std::nullopt, "", now_);
    return Only<CallAwait>().call;
  }

  // Starts the pushes to both shards under ballot 4, round 1.
  std::vector<StartPush> ReachPush() {
    await_ = ReachAwait();
    session_.OnEvent(await_, Plan(4, 1), now_);
    return All<StartPush>();
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint32_t num_allotted_ = 0;
  uint64_t await_ = 0;
  WorkerSession session_;
};

}  // namespace kaon::client

#endif  // KAON_TESTS_CLIENT_WORKER_SESSION_FIXTURE_H_
