#include "server/coordinator/machine/requests/drains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

const absl::Status kGone = absl::UnavailableError("the shard is shutting down");

// Two shards with journals hold a job at step 3; both workers have joined.
class DrainsTest : public testing::Test {
 protected:
  void SetUp() override { Hold(v1::DURABILITY_MODE_JOURNAL); }
  v1::ShardState StateAt(uint64_t step, v1::DurabilityMode durability) {
    v1::ShardState state = StateAfterStep(step);
    state.set_durability(durability);
    if (durability == v1::DURABILITY_MODE_INTERVAL) state.set_interval_steps(8);
    return state;
  }
  void Hold(v1::DurabilityMode durability) {
    harness_.Hold(StateAt(3, durability));
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness_.Join(rank, 100 + rank).ok());
    harness_.ClearSent();
  }
  void BeginAll(uint64_t step) {
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness_.Begin(rank, step).ok());
  }
  // Newest order to drain sent to `shard` since the last ClearSent.
  std::optional<v1::Drain> Order(int shard) {
    std::optional<v1::Drain> order;
    for (const v1::CoordinatorToShard& message : harness_.sent(shard)) {
      if (message.has_drain()) order = message.drain();
    }
    return order;
  }
  void Report(int shard, bool ready, const std::string& error = "") {
    v1::ShardToCoordinator message;
    message.mutable_drain()->set_attempt(Order(shard).value_or(v1::Drain()).attempt());
    message.mutable_drain()->set_ready(ready);
    if (!error.empty()) {
      message.mutable_drain()->set_error_code(
          static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
      message.mutable_drain()->set_error(error);
    }
    harness_.FromShard(shard, message);
  }
  absl::Status Refusal(uint32_t shard) {
    const auto answer = harness_.drained(harness_.DrainShard(shard));
    return answer ? answer->status() : absl::UnknownError("open");
  }

  MachineHarness harness_;
};

TEST_F(DrainsTest, StepsWaitFromTheEndOfTheOpenStepUntilTheShardIsBack) {
  BeginAll(4);
  const CallId call = harness_.DrainShard(1);
  harness_.Tick();
  EXPECT_FALSE(Order(1)) << "a step is open";
  const v1::StepPlan plan = *harness_.SentPlan(0);
  for (int shard : {0, 1}) harness_.Vote(shard, plan);
  harness_.ClearSent();
  for (int shard : {0, 1}) harness_.Applied(shard, plan.position());
  ASSERT_TRUE(Order(1));
  EXPECT_FALSE(Order(1)->end());
  EXPECT_FALSE(Order(0));
  BeginAll(5);
  EXPECT_THAT(harness_.phase(), HasSubstr("step 5: waiting for shard 1, which is being drained"));
  Report(1, /*ready=*/false);
  EXPECT_FALSE(Order(1)->end());
  Report(1, /*ready=*/true);
  EXPECT_TRUE(Order(1)->end());
  EXPECT_FALSE(harness_.drained(call));
  harness_.Disconnect(1, kGone);
  ASSERT_TRUE(harness_.drained(call));
  ASSERT_TRUE((*harness_.drained(call)).ok()) << (*harness_.drained(call)).status();
  EXPECT_EQ((*harness_.drained(call))->step(), 4u);
  EXPECT_EQ((*harness_.drained(call))->position(), plan.position());
  for (const absl::Duration by : {absl::Milliseconds(100), absl::Seconds(5), absl::Seconds(5)}) {
    harness_.Tick(by);
    EXPECT_FALSE(harness_.SentPlan(0)) << "a step was opened without the shard";
  }
  harness_.Connect(1);
  v1::ShardState state = StateAt(4, v1::DURABILITY_MODE_JOURNAL);
  for (int shard : {0, 1}) harness_.State(shard, state);
  ASSERT_TRUE(harness_.SentPlan(0)) << harness_.phase();
  EXPECT_EQ(harness_.SentPlan(0)->step().step(), 5u);
  EXPECT_EQ(harness_.SentPlan(0)->round(), 1u);
}

TEST_F(DrainsTest, AnIdleShardIsAskedAtOnce) {
  harness_.DrainShard(0);
  EXPECT_TRUE(Order(0));
  harness_.ClearSent();
  harness_.Tick();
  EXPECT_TRUE(Order(0)) << "the first order may be lost";
}

TEST_F(DrainsTest, AFullDiskEndsTheDrainAndStepsGoOn) {
  const CallId call = harness_.DrainShard(1);
  BeginAll(4);
  Report(1, /*ready=*/false, "no snapshot: /data: No space left on device");
  ASSERT_TRUE(harness_.drained(call));
  EXPECT_EQ(harness_.drained(call)->status(),
            absl::ResourceExhaustedError("shard 1: no snapshot: /data: No space left on device"));
  harness_.Tick();
  EXPECT_TRUE(harness_.SentPlan(0)) << harness_.phase();
}

// The snapshot is of an entry that another one follows.
TEST_F(DrainsTest, AShardThatReportsBehindAnOpenEntryIsAskedAgain) {
  harness_.DrainShard(1);
  v1::SetGroupRequest change;
  change.set_group("adamw");
  change.add_settings()->set_field("lr");
  change.mutable_settings(0)->set_value("0.5");
  change.set_expected_revision(StateAt(3, v1::DURABILITY_MODE_JOURNAL).config_revision());
  harness_.SetGroup(change);
  ASSERT_TRUE(harness_.SentPlan(0)) << harness_.phase();
  const v1::StepPlan plan = *harness_.SentPlan(0);
  Report(1, /*ready=*/true);
  for (int shard : {0, 1}) harness_.Vote(shard, plan);
  harness_.ClearSent();
  for (int shard : {0, 1}) harness_.Applied(shard, plan.position());
  ASSERT_TRUE(Order(1)) << harness_.phase();
  EXPECT_FALSE(Order(1)->end());
}

TEST_F(DrainsTest, ACallerThatGivesUpLeavesTheShardAsItIs) {
  const CallId call = harness_.DrainShard(1);
  BeginAll(4);
  harness_.HangUp(call);
  harness_.ClearSent();
  harness_.Tick();
  EXPECT_FALSE(Order(1));
  EXPECT_TRUE(harness_.SentPlan(0)) << harness_.phase();
}

TEST_F(DrainsTest, AShardThatWasToldToEndIsAwaitedWithoutACaller) {
  const CallId call = harness_.DrainShard(1);
  Report(1, /*ready=*/true);
  harness_.HangUp(call);
  BeginAll(4);
  harness_.Tick();
  EXPECT_FALSE(harness_.SentPlan(0));
  EXPECT_TRUE(Order(1)->end());
}

TEST_F(DrainsTest, AShardThatIsLostBeforeIsNotDrained) {
  const CallId call = harness_.DrainShard(1);
  harness_.Disconnect(1, kGone);
  ASSERT_TRUE(harness_.drained(call));
  EXPECT_TRUE(absl::IsUnavailable(harness_.drained(call)->status()));
  EXPECT_THAT(harness_.drained(call)->status().message(), HasSubstr("lost before it was drained"));
}

TEST_F(DrainsTest, AReportOfAnEarlierDrainIsIgnored) {
  const CallId first = harness_.DrainShard(1);
  const uint64_t attempt = Order(1)->attempt();
  harness_.HangUp(first);
  harness_.DrainShard(1);
  ASSERT_NE(Order(1)->attempt(), attempt);
  v1::ShardToCoordinator late;
  late.mutable_drain()->set_attempt(attempt);
  late.mutable_drain()->set_ready(true);
  harness_.FromShard(1, late);
  harness_.Tick();
  EXPECT_FALSE(Order(1)->end());
}

TEST_F(DrainsTest, AShardOfAnOlderVersionIsNotDrained) {
  const CallId call = harness_.DrainShard(1);
  harness_.Refuse(1, v1::REFUSAL_REASON_INVALID, "control message without a body",
                  harness_.ballot(), "");
  ASSERT_TRUE(harness_.drained(call));
  EXPECT_TRUE(absl::IsFailedPrecondition(harness_.drained(call)->status()));
}

TEST_F(DrainsTest, OneShardAtATime) {
  EXPECT_EQ(Refusal(2), absl::NotFoundError("shard 2: the shards are 0 .. 1"));
  harness_.DrainShard(1);
  EXPECT_EQ(Refusal(0), absl::FailedPreconditionError(
                            "shard 1 is being drained: drain shards one after the other"));
  harness_.Disconnect(1, kGone);
  EXPECT_TRUE(absl::IsUnavailable(Refusal(1)));
  EXPECT_EQ(Refusal(0),
            absl::FailedPreconditionError("shard 1 is not connected: UNAVAILABLE: the shard is "
                                          "shutting down: drain shard 0 once it is back"));
}

TEST_F(DrainsTest, ACoordinatorThatLosesTheShardsAnswers) {
  const CallId call = harness_.DrainShard(1);
  v1::Ballot other = harness_.ballot();
  other.set_counter(other.counter() + 1);
  harness_.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", other, "coordinator-b:1");
  ASSERT_TRUE(harness_.drained(call));
  EXPECT_FALSE(harness_.drained(call)->ok());
}

class DrainWithoutJournalTest
    : public DrainsTest,
      public testing::WithParamInterface<std::pair<v1::DurabilityMode, std::string>> {
  void SetUp() override { Hold(GetParam().first); }
};

TEST_P(DrainWithoutJournalTest, IsRefusedBecauseStepsWouldBeLost) {
  const absl::Status refusal = Refusal(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
  EXPECT_THAT(refusal.message(), HasSubstr(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(Modes, DrainWithoutJournalTest,
                         testing::Values(std::pair(v1::DURABILITY_MODE_NONE,
                                                   "durability none, must have journal"),
                                         std::pair(v1::DURABILITY_MODE_INTERVAL,
                                                   "durability interval(8), must have journal")));

}  // namespace
}  // namespace kaon::coordinator
