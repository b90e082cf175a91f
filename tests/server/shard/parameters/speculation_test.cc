// Weights that are computed before the decision (protocol.md section 3) have the same bits,
// whatever the outcome of the step is.
#include "server/shard/parameters/speculation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;
const std::vector<float> kGradientOfW = {0.5, -1, 2, 0.25, -0.5, 1};
const std::vector<float> kGradientOfB = {1, -2, 3, -4};
const std::vector<float> kOtherGradientOfW = {-3, 1, 0.5, 2, 4, -1};

// Speculates as long as possible. Returns the number of computed parameters.
int SpeculateAll(DrivenShard& shard) {
  int computed = 0;
  for (; shard.core().CanSpeculate(); ++computed) shard.core().Speculate();
  return computed;
}

// Pushes the gradients of both ranks.
void PushBoth(DrivenShard& shard, uint64_t step, const std::vector<std::vector<float>>& values) {
  for (uint32_t rank : {0, 1}) {
    const absl::Status status = shard.Push(rank, step, values);
    ASSERT_TRUE(status.ok()) << status;
  }
}

void ExpectSameState(DrivenShard& a, DrivenShard& b, uint64_t step_of_a, uint64_t step_of_b) {
  EXPECT_EQ(a.Read(kW, step_of_a), b.Read(kW, step_of_b));
  EXPECT_EQ(a.Read(kB, step_of_a), b.Read(kB, step_of_b));
  EXPECT_EQ(a.core().machine().state_digest(), b.core().machine().state_digest());
  EXPECT_EQ(a.core().Describe("")->parameters(kW).newton_schulz_updates(),
            b.core().Describe("")->parameters(kW).newton_schulz_updates());
}

TEST(SpeculationTest, EndsInTheBitsOfAShardThatWaits) {
  DrivenShard waiting;
  waiting.Load();
  DrivenShard shard;
  shard.Load();
  EXPECT_EQ(SpeculateAll(shard), 0);
  for (uint64_t step = 1; step <= 3; ++step) {
    std::vector<float> w = kGradientOfW;
    w[step] *= 3;
    waiting.Train(step, {w, kGradientOfB});
    const v1::StepRecord record = shard.Decided(step, {w, kGradientOfB});
    // w alone: nothing is orthogonalized of b.
    EXPECT_EQ(SpeculateAll(shard), 1);
    // Nothing of it shows.
    EXPECT_EQ(shard.core().Describe("")->parameters(kW).updates_applied(), step - 1);
    shard.Decide(record);
    ExpectSameState(shard, waiting, step, step);
  }
}

// The decision publishes the weights that were computed ahead, without computing them again.
TEST(SpeculationTest, TheDecisionTakesWhatIsThere) {
  DrivenShard shard;
  shard.Load();
  const v1::StepRecord record = shard.Decided(1, {kGradientOfW, kGradientOfB});
  ASSERT_EQ(SpeculateAll(shard), 1);
  shard.memory().Write(shard.core().publisher().BeginWrite(kW)->next_weights(),
                       std::vector<float>{42});
  shard.Decide(record);
  EXPECT_EQ(shard.Read(kW, 1)[0], 42);
}

TEST(SpeculationTest, BeginsWhileOtherGradientsStillArrive) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  for (uint32_t rank : {0, 1}) {
    // The push stays open: b is neither there nor missing.
    EXPECT_EQ(shard.PushParameters(rank, 1, {{kW, kGradientOfW}}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(shard.Pump().empty());
  EXPECT_EQ(SpeculateAll(shard), 1);
  PushBoth(shard, 1, {kGradientOfW, kGradientOfB});
  EXPECT_TRUE(shard.Pump().at(0).has_prepared());
  EXPECT_EQ(SpeculateAll(shard), 0);
  shard.Decide(Applying(TrainPlan(1, 1, 1)));
  DrivenShard waiting;
  waiting.Load();
  waiting.Train(1, {kGradientOfW, kGradientOfB});
  ExpectSameState(shard, waiting, 1, 1);
}

// Edges 10 and 11.
TEST(SpeculationTest, ASkippedStepLeavesNothingBehind) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  PushBoth(shard, 1, {kOtherGradientOfW, {NAN, 0, 0, 0}});
  shard.Pump();
  ASSERT_EQ(SpeculateAll(shard), 1);
  shard.Decide(Skipping(TrainPlan(1, 1, 1)));
  EXPECT_EQ(shard.Read(kW, 1), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  shard.Train(2, {kGradientOfW, kGradientOfB});
  DrivenShard plain;
  plain.Load();
  plain.Train(1, {kGradientOfW, kGradientOfB});
  ExpectSameState(shard, plain, 2, 1);
}

// Rule 8: results of earlier attempts are useless.
TEST(SpeculationTest, AnotherAttemptsGradientIsComputedAnew) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  PushBoth(shard, 1, {kOtherGradientOfW, kGradientOfB});
  shard.Pump();
  ASSERT_EQ(SpeculateAll(shard), 1);
  shard.Promise(2);
  v1::StepPlan again = TrainPlan(1, 2, 1);
  for (int i : {0, 1}) {
    again.mutable_step()->mutable_members(i)->mutable_attempt()->set_number(9 + i);
  }
  shard.Plan(again);
  EXPECT_EQ(SpeculateAll(shard), 0);
  for (uint32_t rank : {0, 1}) shard.SetAttempt(rank, 9 + rank);
  PushBoth(shard, 1, {kGradientOfW, kGradientOfB});
  shard.Pump();
  shard.Decide(Applying(again));
  DrivenShard plain;
  plain.Load();
  plain.Train(1, {kGradientOfW, kGradientOfB});
  ExpectSameState(shard, plain, 1, 1);
}

// [T3]: the step will be skipped.
TEST(SpeculationTest, LeavesAGradientAloneThatIsNotFinite) {
  DrivenShard shard;
  shard.Load();
  std::vector<float> broken = kGradientOfW;
  broken[4] = std::numeric_limits<float>::infinity();
  shard.Decided(1, {broken, kGradientOfB});
  EXPECT_FALSE(shard.core().CanSpeculate());
}

// [C3], [C7]: its factor is not known yet.
TEST(SpeculationTest, LeavesAloneWhatIsClipped) {
  for (const v1::ClipPolicy policy : {v1::CLIP_POLICY_EXEMPT, v1::CLIP_POLICY_CLIP}) {
    DrivenShard shard;
    v1::StepPlan registration = RegistrationPlan(1, 1);
    v1::JobDefinition* job = registration.mutable_registration()->mutable_definition();
    job->set_max_grad_norm(1);
    job->mutable_groups(0)->set_clip_policy(policy);
    shard.Load(registration);
    shard.Decided(1, {kGradientOfW, kGradientOfB});
    EXPECT_EQ(shard.core().CanSpeculate(), policy == v1::CLIP_POLICY_EXEMPT);
  }
}

// Statistics read the version that would be overwritten.
TEST(SpeculationTest, LeavesAloneWhatSomebodyLooksAt) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::StepRecord record = shard.Decided(2, {kGradientOfW, kGradientOfB});
  ASSERT_EQ(SpeculateAll(shard), 1);
  v1::ShardParameterRequest request;
  request.set_parameter_id(kW);
  EXPECT_FALSE(shard.core().Stats(request)->has_update_norm());
  shard.Decide(record);
  EXPECT_TRUE(shard.core().Stats(request)->has_update_norm());
  const v1::StepRecord next = shard.Decided(3, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(SpeculateAll(shard), 0);
  EXPECT_TRUE(shard.core().Stats(request)->has_update_norm());
  shard.Decide(next);
}

// "Snapshots read committed buffers only."
TEST(SpeculationTest, WaitsUntilAFrozenStateIsRead) {
  DrivenShard shard;
  shard.Load();
  const v1::StepRecord record = shard.Decided(1, {kGradientOfW, kGradientOfB});
  std::unique_ptr<StateFreeze> freeze = *shard.core().Freeze();
  EXPECT_FALSE(shard.core().CanSpeculate());
  freeze.reset();
  EXPECT_EQ(SpeculateAll(shard), 1);
  shard.Decide(record);
  DrivenShard waiting;
  waiting.Load();
  waiting.Train(1, {kGradientOfW, kGradientOfB});
  ExpectSameState(shard, waiting, 1, 1);
}

}  // namespace
}  // namespace kaon::shard
