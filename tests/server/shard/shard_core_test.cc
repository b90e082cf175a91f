#include "server/shard/shard_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/backend.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;
constexpr uint32_t kFrozen = 2;
const std::vector<float> kGradientOfW = {0.5, -1, 2, 0.25, -0.5, 1};
const std::vector<float> kGradientOfB = {1, -2, 3, -4};

TEST(ShardCoreTest, ServesTheInitialWeightsBitForBit) {
  DrivenShard shard;
  shard.Load();
  EXPECT_TRUE(shard.core().machine().weights_loaded());
  EXPECT_EQ(shard.Read(kW, 0), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(shard.Read(kFrozen, 0), std::vector<float>(5, 9));
}

// [M6], edge 21: Newton-Schulz ran, once for each applied step.
TEST(ShardCoreTest, StepsEachParameterByItsGroupsRule) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  // The same update by the backend alone.
  kernels::BackendOptions options;
  options.gemm = "reference";
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend(options);
  std::vector<float> b(4, 1);
  std::vector<float> exp_avg(4);
  std::vector<float> exp_avg_sq(4);
  const kernels::Region state[] = {exp_avg, exp_avg_sq};
  kernels::UpdateScalars scalars;
  scalars.lr = 0.001;
  const uint64_t shape[] = {4};
  backend->ApplyUpdate(kernels::AdamWConfig(), scalars, shape, {kGradientOfB, b, b, state});
  EXPECT_EQ(shard.Read(kB, 1), b);
  const absl::StatusOr<v1::DescribeShardResponse> description = shard.core().Describe("gpt2");
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->parameters(kW).newton_schulz_updates(), 1u);
  EXPECT_EQ(description->parameters(kB).newton_schulz_updates(), 0u);
  EXPECT_EQ(description->parameters(kB).updates_applied(), 1u);
  EXPECT_EQ(description->parameters(kFrozen).updates_applied(), 0u);
  EXPECT_EQ(description->applied_steps(), 1u);
}

TEST(ShardCoreTest, NamesThePlanWhoseGradientsItAwaits) {
  DrivenShard shard;
  shard.Load();
  EXPECT_FALSE(shard.core().Describe("")->has_awaited_ballot());
  shard.Plan(TrainPlan(1, 1, 1));
  ASSERT_TRUE(shard.Push(0, 1, {kGradientOfW, kGradientOfB}).ok());
  for (const uint64_t round : {1, 2}) {
    // The gradients count in another round of the same members.
    shard.Plan(TrainPlan(1, 1, round));
    const v1::DescribeShardResponse description = *shard.core().Describe("");
    ASSERT_EQ(description.awaited_ranks_size(), 1) << round;
    EXPECT_EQ(description.awaited_ranks(0), 1u);
    EXPECT_EQ(description.awaited_ballot().counter(), 1u);
    EXPECT_EQ(description.awaited_round(), round);
  }
}

// [T6]
TEST(ShardCoreTest, ServesVersionTBesideTheOneBefore) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(shard.Read(kW, 0), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_NE(shard.Read(kW, 1), shard.Read(kW, 0));
  EXPECT_EQ(shard.Read(kFrozen, 1), std::vector<float>(5, 9));
}

// [T3], edges 10 and 11.
TEST(ShardCoreTest, ASkippedStepIsCountedAndChangesNothing) {
  DrivenShard shard;
  shard.Load();
  const uint64_t weights = shard.core().Describe("")->weights_digest();
  shard.Plan(TrainPlan(1, 1, 1));
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(shard.Push(rank, 1, {kGradientOfW, {NAN, 0, 0, 0}}).ok());
  }
  const std::vector<v1::ShardToCoordinator> sent = shard.Pump();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].prepared().first_non_finite().parameter_id(), kB);
  shard.Decide(Skipping(TrainPlan(1, 1, 1)));
  const absl::StatusOr<v1::DescribeShardResponse> description = shard.core().Describe("gpt2");
  EXPECT_EQ(description->weights_digest(), weights);
  EXPECT_EQ(description->skipped_steps(), 1u);
  EXPECT_EQ(description->state().applied_step(), 1u);
  EXPECT_EQ(shard.Read(kB, 1), shard.Read(kB, 0));
  // The next step starts from there.
  shard.Train(2, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(shard.core().Describe("")->parameters(kB).updates_applied(), 1u);
}

// [T3], edges 10 and 11: what follows a skip is as if its gradients had never come, sound ones
// included: no momentum, moment or counter remembers them.
TEST(ShardCoreTest, ASkippedGradientIsForgotten) {
  DrivenShard skipping;
  skipping.Load();
  skipping.Train(1, {kGradientOfW, kGradientOfB});
  skipping.Plan(TrainPlan(2, 1, 1));
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(skipping.Push(rank, 2, {{9, 8, -7, 6, -5, 4}, {INFINITY, 5, -6, 7}}).ok());
  }
  skipping.Pump();
  skipping.Decide(Skipping(TrainPlan(2, 1, 1)));
  const std::vector<float> w = {-1, 0.5, 0.25, -2, 1, 3};
  const std::vector<float> b = {4, 1, -1, 2};
  skipping.Train(3, {w, b});
  DrivenShard plain;
  plain.Load();
  plain.Train(1, {kGradientOfW, kGradientOfB});
  plain.Train(2, {w, b});
  EXPECT_EQ(skipping.Read(kW, 3), plain.Read(kW, 2));
  EXPECT_EQ(skipping.Read(kB, 3), plain.Read(kB, 2));
  for (const uint32_t id : {kW, kB}) {
    const auto row = skipping.core().Describe("")->parameters(static_cast<int>(id));
    EXPECT_EQ(row.updates_applied(), 2u) << id;
    EXPECT_EQ(row.newton_schulz_updates(), id == kW ? 2u : 0u);
  }
}

// [T7], edge 41: its count of updates stays behind that of the job.
TEST(ShardCoreTest, LeavesAParameterAloneThatNobodyHasAGradientFor) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, {}});
  EXPECT_EQ(shard.Read(kB, 1), std::vector<float>(4, 1));
  EXPECT_EQ(shard.core().Describe("")->parameters(kB).updates_applied(), 0u);
}

// [C3], [C7], [C9]: the gradient, before any state is touched; not that of an exempt group.
TEST(ShardCoreTest, ScalesGradientsByTheFactorOfTheirNormGroup) {
  DrivenShard clipped;
  clipped.Load();
  DrivenShard halved;
  halved.Load();
  clipped.Plan(TrainPlan(1, 1, 1));
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(clipped.Push(rank, 1, {kGradientOfW, {4, 8, 16, 32}}).ok());
  }
  clipped.Pump();
  v1::StepRecord record = Applying(TrainPlan(1, 1, 1));
  record.mutable_decision()->mutable_norms(0)->set_exempt(true);
  record.mutable_decision()->mutable_norm_groups(0)->set_clip_factor(0.5);
  clipped.Decide(record);
  halved.Train(1, {kGradientOfW, {2, 4, 8, 16}});
  EXPECT_EQ(clipped.Read(kW, 1), halved.Read(kW, 1));
  EXPECT_EQ(clipped.Read(kB, 1), halved.Read(kB, 1));
  EXPECT_EQ(clipped.core().Describe("")->state_digest(),
            halved.core().Describe("")->state_digest());
}

v1::StepPlan After(v1::StepPlan plan, uint64_t position, uint64_t config_revision) {
  plan.set_position(position);
  plan.set_config_revision(config_revision);
  return plan;
}

TEST(ShardCoreTest, StepsByTheChangedGroupsAndKeepsTheState) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const uint64_t weights = shard.core().Describe("")->weights_digest();
  v1::StepPlan change = GroupChangePlan(4, 0.001, 1, 1);
  change.mutable_group_change()->mutable_groups(1)->set_weight_decay(0.5);
  EXPECT_TRUE(shard.Plan(change).at(0).has_prepared());
  EXPECT_EQ(shard.Decide(Applying(change)).at(0).applied().position(), 4u);
  EXPECT_EQ(shard.core().Describe("")->weights_digest(), weights);
  EXPECT_EQ(shard.core().Describe("")->applied_steps(), 1u);
  // The same state without the change: only the decay tells them apart.
  DrivenShard plain;
  plain.Load();
  plain.Train(1, {kGradientOfW, kGradientOfB});
  plain.Train(2, {kGradientOfW, kGradientOfB});
  const v1::StepPlan next = After(TrainPlan(2, 1, 1), 5, 4);
  shard.Plan(next);
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(shard.Push(rank, 2, {kGradientOfW, kGradientOfB}).ok());
  }
  shard.Pump();
  shard.Decide(Applying(next));
  EXPECT_EQ(shard.Read(kW, 2), plain.Read(kW, 2));
  EXPECT_NE(shard.Read(kB, 2), plain.Read(kB, 2));
  EXPECT_EQ(shard.memory().Floats(SlotOf(shard.core().parameters()->Get(kB), 0)),
            plain.memory().Floats(SlotOf(plain.core().parameters()->Get(kB), 0)));
}

// The holder that had planned step 1 died; the next one changes a group first.
TEST(ShardCoreTest, AStepThatAChangeOvertookIsPushedAgain) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  ASSERT_TRUE(shard.Push(0, 1, {kGradientOfW, kGradientOfB}).ok());
  shard.Promise(2);
  const v1::StepPlan change = GroupChangePlan(3, 0.5, 2, 1);
  ASSERT_TRUE(shard.Plan(change).at(0).has_prepared());
  shard.Decide(Applying(change));
  EXPECT_EQ(shard.Push(1, 1, {kGradientOfW, kGradientOfB}).code(), absl::StatusCode::kUnavailable);
  const v1::StepPlan next = After(TrainPlan(1, 2, 1), 4, 3);
  EXPECT_TRUE(shard.Plan(next).empty());
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(shard.Push(rank, 1, {kGradientOfW, kGradientOfB}).ok());
  }
  EXPECT_EQ(shard.Pump().at(0).prepared().plan(), next.SerializeAsString());
}

// Another shard refused a move. The change that is decided at its position is another one.
TEST(ShardCoreTest, AMoveThatWasGivenUpIsNotMadeByTheNextChange) {
  DrivenShard shard;
  shard.Load();
  const bool was_in_memory = shard.core().parameters()->Get(kW).is_in_memory();
  v1::StepPlan move = GroupChangePlan(3, 0.5, 1, 1);
  move.mutable_group_change()->mutable_groups(0)->set_tier(ShardMemory::is_nvme() ? v1::TIER_HOST
                                                                                  : v1::TIER_NVME);
  // A shard without a disk refuses it.
  EXPECT_EQ(shard.Plan(move).at(0).has_prepared(), ShardMemory::is_nvme());
  shard.Promise(2);
  const v1::StepPlan change = GroupChangePlan(3, 0.25, 2, 1);
  ASSERT_TRUE(shard.Plan(change).at(0).has_prepared());
  shard.Decide(Applying(change));
  EXPECT_EQ(shard.core().parameters()->Get(kW).is_in_memory(), was_in_memory);
}

// A step is pushed by one worker more than the step before, then by one alone.
TEST(ShardCoreTest, StepsWithAsManyWorkersAsTheJobWasChangedTo) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  ASSERT_TRUE(shard.Push(0, 1, {kGradientOfW, kGradientOfB}).ok());
  const auto change = [](const std::string& world_size, uint64_t position, uint64_t revision) {
    v1::StepPlan plan = After(GroupChangePlan(position, 0.5, 1, 2), position, revision);
    plan.mutable_group_change()->clear_groups();
    plan.mutable_group_change()->mutable_settings(0)->clear_group();
    plan.mutable_group_change()->mutable_settings(0)->set_field("world_size");
    plan.mutable_group_change()->mutable_settings(0)->set_value(world_size);
    return plan;
  };
  // Each needs room for a chunk.
  const std::vector<v1::ShardToCoordinator> refused = shard.Plan(change("4096", 3, 1));
  EXPECT_TRUE(absl::StrContains(refused.at(0).refused().detail(), "/ 4096 workers"));
  const v1::StepPlan alone = change("1", 3, 1);
  ASSERT_TRUE(shard.Plan(alone).at(0).has_prepared());
  shard.Decide(Applying(alone));
  v1::StepPlan step = After(TrainPlan(1, 1, 3), 4, 3);
  EXPECT_TRUE(
      absl::StrContains(shard.Plan(step).at(0).refused().detail(), "2 members, expecting 1"));
  step.mutable_step()->mutable_members()->RemoveLast();
  EXPECT_TRUE(shard.Plan(step).empty());
  EXPECT_EQ(shard.Push(1, 1, {kGradientOfW, kGradientOfB}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(shard.Push(0, 1, {kGradientOfW, kGradientOfB}).ok());
  EXPECT_EQ(shard.Pump().at(0).prepared().plan(), step.SerializeAsString());
}

TEST(ShardCoreTest, DigestsTellStatesApart) {
  DrivenShard a;
  a.Load();
  DrivenShard b;
  b.Load();
  EXPECT_EQ(a.core().Describe("")->state_digest(), b.core().Describe("")->state_digest());
  a.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_NE(a.core().Describe("")->weights_digest(), b.core().Describe("")->weights_digest());
  b.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(a.core().Describe("")->state_digest(), b.core().Describe("")->state_digest());
}

// P4: what was pushed for an entry, and how it ends, does not enter its own digest.
TEST(ShardCoreTest, VotesWithTheDigestOfTheStateItFound) {
  DrivenShard shard;
  shard.Promise(1);
  EXPECT_EQ(shard.Plan(RegistrationPlan(1, 1)).at(0).prepared().state_digest(), 0u);
  shard.Decide(Applying(RegistrationPlan(1, 1)));
  const uint64_t registered = shard.core().machine().state_digest();
  EXPECT_NE(registered, 0u);
  EXPECT_EQ(shard.core().Describe("")->weights_digest(), 0u);
  shard.Load();
  const auto vote = [&shard](const v1::StepPlan& plan, const std::vector<float>& of_b) {
    shard.Plan(plan);
    for (uint32_t rank : {0, 1}) {
      EXPECT_TRUE(shard.Push(rank, plan.step().step(), {kGradientOfW, of_b}).ok());
    }
    return shard.Pump().at(0).prepared().state_digest();
  };
  const uint64_t loaded = shard.core().machine().state_digest();
  EXPECT_NE(loaded, registered);
  EXPECT_EQ(vote(TrainPlan(1, 1, 1), kGradientOfB), loaded);
  shard.Decide(Applying(TrainPlan(1, 1, 1)));
  const uint64_t stepped = shard.core().machine().state_digest();
  EXPECT_NE(stepped, loaded);
  EXPECT_EQ(vote(TrainPlan(2, 1, 1), {NAN, 0, 0, 0}), stepped);
  // Edge 10: a skipped step leaves the state as it was, and so its digest.
  shard.Decide(Skipping(TrainPlan(2, 1, 1)));
  EXPECT_EQ(shard.core().machine().state_digest(), stepped);
  const v1::StepPlan change = GroupChangePlan(5, 0.5, 1, 1);
  EXPECT_EQ(shard.Plan(change).at(0).prepared().state_digest(), stepped);
  shard.Decide(Applying(change));
  EXPECT_EQ(vote(After(TrainPlan(3, 1, 1), 6, 5), kGradientOfB), stepped);
}

TEST(ShardCoreTest, KeepsTheSumsOfAPlanThatIsOnlyRestamped) {
  DrivenShard shard;
  shard.Load();
  shard.Plan(TrainPlan(1, 1, 1));
  ASSERT_TRUE(shard.Push(0, 1, {kGradientOfW, kGradientOfB}).ok());
  shard.Promise(2);
  shard.Plan(TrainPlan(1, 2, 1));
  ASSERT_TRUE(shard.Push(1, 1, {kGradientOfW, kGradientOfB}).ok());
  const std::vector<v1::ShardToCoordinator> sent = shard.Pump();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].prepared().plan(), TrainPlan(1, 2, 1).SerializeAsString());
}

TEST(ShardCoreTest, RefusesAJobThatDoesNotFitAndReservesNothing) {
  // A disk would have room.
  if (ShardMemory::is_nvme()) return;
  DrivenShard shard(/*capacity_bytes=*/256);
  shard.Promise(1);
  const std::vector<v1::ShardToCoordinator> sent = shard.Plan(RegistrationPlan(1, 1));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_NE(sent[0].refused().detail().find("0 free = 256 capacity - 256 in use"),
            std::string::npos)
      << sent[0].refused().detail();
  EXPECT_EQ(shard.store().used_bytes(), 0u);
}

// P17: what Newton-Schulz takes beside the tensors is counted, too.
TEST(ShardCoreTest, RefusesAJobWhoseUpdatesDoNotFit) {
  // A disk would have room for the frozen parameter.
  if (ShardMemory::is_nvme()) return;
  uint64_t needed = 0;
  {
    DrivenShard shard;
    shard.Load();
    needed = shard.store().used_bytes();
  }
  DrivenShard enough(needed);
  enough.Load();
  enough.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(enough.store().used_bytes(), needed);
  for (uint64_t capacity = needed - 64; capacity > 0;
       capacity -= std::min<uint64_t>(capacity, 64)) {
    DrivenShard shard(capacity);
    shard.Promise(1);
    EXPECT_TRUE(shard.Plan(RegistrationPlan(1, 1)).at(0).has_refused()) << capacity;
    EXPECT_EQ(shard.store().used_bytes(), 0u);
  }
  DrivenShard tensors_only(8 * ShardMemory::least_extent());
  tensors_only.Promise(1);
  const std::string detail = tensors_only.Plan(RegistrationPlan(1, 1)).at(0).refused().detail();
  EXPECT_TRUE(absl::StrContains(detail, "parameter w: an update takes ")) << detail;
}

// What was folded for the job before may still wait to be told.
TEST(ShardCoreTest, TakesNothingThatWasFoldedBeforeAReservationFailed) {
  DrivenShard shard(/*capacity_bytes=*/256);
  shard.Promise(1);
  ASSERT_TRUE(shard.Plan(RegistrationPlan(1, 1)).at(0).has_refused());
  shard.core().OnParameterFolded(1, 0);
  shard.core().OnFolded(1);
  EXPECT_TRUE(shard.Pump().empty());
  EXPECT_FALSE(shard.core().CanSpeculate());
}

TEST(ShardCoreTest, RefusesARegistrationWithAPlacementOfOthers) {
  DrivenShard shard;
  shard.Promise(1);
  v1::StepPlan plan = RegistrationPlan(1, 1);
  plan.mutable_registration()->mutable_placement()->set_num_shards(2);
  EXPECT_EQ(shard.Plan(plan).at(0).refused().detail(), "placement on 2 shards, there are 1");
}

TEST(ShardCoreTest, WithoutItsStateItServesNothing) {
  DrivenShard shard(1 << 16, "the state was in memory only");
  EXPECT_EQ(shard.Promise(1).at(0).state().data_loss(), "the state was in memory only");
  EXPECT_EQ(shard.Push(0, 1, {}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(shard.core().publisher().CheckPull(v1::PullRequest()).code(),
            absl::StatusCode::kDataLoss);
}

TEST(ShardCoreTest, DescribesNoOtherJob) {
  DrivenShard shard;
  EXPECT_TRUE(shard.core().Describe("").ok());
  EXPECT_EQ(shard.core().Describe("gpt2").status().code(), absl::StatusCode::kNotFound);
  shard.Load();
  EXPECT_TRUE(shard.core().Describe("gpt2").ok());
  EXPECT_EQ(shard.core().Describe("bert").status().message(),
            "job 'bert' asked for, this shard holds 'gpt2'");
}

}  // namespace
}  // namespace kaon::shard
