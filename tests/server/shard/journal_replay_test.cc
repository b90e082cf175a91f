// Replay: a shard that is killed at any moment stands again where its journal says it stood.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/shard_history.h"

namespace kaon::shard {
namespace {

using journal::Entry;

const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};

std::unique_ptr<DrivenShard> Restore(absl::Span<const Entry> entries) {
  auto shard = std::make_unique<DrivenShard>();
  for (const Entry& entry : entries) {
    const absl::Status status = shard->core().Replay(entry);
    EXPECT_TRUE(status.ok()) << status;
  }
  shard->core().FinishReplay();
  EXPECT_TRUE(shard->core().TakeOutputs().empty());
  return shard;
}

std::vector<Entry> EntriesOf(const DrivenShard& shard) { return shard.journal().entries(); }

absl::Status ReplayAll(const std::vector<Entry>& entries) {
  DrivenShard shard;
  for (const Entry& entry : entries) {
    const absl::Status status = shard.core().Replay(entry);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void ExpectLost(const std::vector<Entry>& entries, const std::string& words) {
  const absl::Status status = ReplayAll(entries);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
}

// P6, P7: killed after any entry, it goes on with the same inputs to the same bits.
TEST(ShardCoreReplayTest, AnyPrefixOfTheJournalGoesOnToTheSameBits) {
  HistoryCounts counts;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const ShardHistory history = MakeHistory(seed, 5);
    DrivenShard undisturbed;
    const std::map<uint64_t, Observed> expected = Play(history, 1, undisturbed);
    const std::vector<Entry> entries = EntriesOf(undisturbed);
    for (size_t kept = 0; kept <= entries.size(); ++kept) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", killed after entry " + std::to_string(kept) +
                   " of " + std::to_string(entries.size()));
      const auto prefix = absl::MakeConstSpan(entries).first(kept);
      const std::unique_ptr<DrivenShard> restored = Restore(prefix);
      const uint64_t position = restored->core().machine().applied_position();
      if (position > 0) {
        EXPECT_EQ(restored->core().Describe("")->state_digest(), [&] {
          v1::DescribeShardResponse description;
          description.ParseFromString(expected.at(position).description);
          return description.state_digest();
        }());
      }
      for (const auto& [decided, observed] : Play(history, position + 1, *restored)) {
        ASSERT_EQ(observed.prepared, expected.at(decided).prepared) << "position " << decided;
        ASSERT_EQ(observed.description, expected.at(decided).description) << "position " << decided;
      }
      // Both lives in one journal.
      std::vector<Entry> both(prefix.begin(), prefix.end());
      for (const Entry& entry : restored->journal().entries()) both.push_back(entry);
      ASSERT_EQ(Describe(*Restore(both)), Describe(undisturbed));
    }
    counts.skips += history.counts.skips;
    counts.group_changes += history.counts.group_changes;
    counts.restamps += history.counts.restamps;
    counts.withdrawals += history.counts.withdrawals;
  }
  // Otherwise this shows little.
  EXPECT_GT(counts.skips, 3);
  EXPECT_GT(counts.group_changes, 3);
  EXPECT_GT(counts.restamps, 10);
  EXPECT_GT(counts.withdrawals, 3);
}

TEST(ShardCoreReplayTest, KeepsItsPromiseAndItsPlace) {
  DrivenShard before;
  before.Promise(7);
  const std::unique_ptr<DrivenShard> shard = Restore(EntriesOf(before));
  EXPECT_EQ(shard->core().machine().num_shards(), 1u);
  // Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
  EXPECT_EQ(shard->Promise(6).at(0).refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
  EXPECT_TRUE(shard->Promise(7).at(0).has_state());
}

class HeldPrepareTest : public testing::Test {
 protected:
  HeldPrepareTest() {
    before_.Load();
    before_.Train(1, kGradients);
    before_.Plan(TrainPlan(2, 1, 1));
    for (uint32_t rank : {0, 1}) EXPECT_TRUE(before_.Push(rank, 2, kGradients).ok());
    vote_ = before_.Pump().at(0).prepared().SerializeAsString();
    shard_ = Restore(EntriesOf(before_));
  }

  DrivenShard before_;
  std::string vote_;
  std::unique_ptr<DrivenShard> shard_;
};

TEST_F(HeldPrepareTest, IsPartOfWhatANewHolderIsTold) {
  EXPECT_EQ(shard_->Promise(2).at(0).state().prepared().SerializeAsString(), vote_);
}

TEST_F(HeldPrepareTest, IsDecidedAtOnceToTheSameBits) {
  before_.Decide(Applying(TrainPlan(2, 1, 1)));
  shard_->Decide(Applying(TrainPlan(2, 1, 1)));
  EXPECT_EQ(Describe(*shard_), Describe(before_));
  EXPECT_EQ(shard_->Read(0, 2), before_.Read(0, 2));
  EXPECT_EQ(shard_->Read(0, 1), before_.Read(0, 1));
}

TEST_F(HeldPrepareTest, IsNotChangedByWorkersThatPushAgain) {
  for (uint32_t rank : {0, 1}) EXPECT_TRUE(shard_->Push(rank, 2, kGradients).ok());
  EXPECT_TRUE(shard_->Pump().empty());
  EXPECT_TRUE(shard_->journal().All<journal::GradientSlice>().empty());
  before_.Decide(Applying(TrainPlan(2, 1, 1)));
  shard_->Decide(Applying(TrainPlan(2, 1, 1)));
  EXPECT_EQ(Describe(*shard_), Describe(before_));
}

// Rule 2: "A PLAN that differs from the held PREPARE only in (ballot, round) is re-stamped durably
// without a re-push."
TEST_F(HeldPrepareTest, IsRestampedWithoutAnotherGradient) {
  shard_->Promise(2);
  EXPECT_EQ(shard_->Plan(TrainPlan(2, 2, 1)).at(0).prepared().plan(),
            TrainPlan(2, 2, 1).SerializeAsString());
  EXPECT_TRUE(shard_->journal().All<journal::GradientSlice>().empty());
  // A worker that asks is told that all is there.
  EXPECT_TRUE(shard_->Push(0, 2, {}).ok());
}

TEST_F(HeldPrepareTest, IsWithdrawnByAPlanOfOtherAttemptsAndPushedAgain) {
  v1::StepPlan other = TrainPlan(2, 1, 2);
  other.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  EXPECT_TRUE(shard_->Plan(other).empty());
  EXPECT_FALSE(shard_->core().machine().state().has_prepared());
  EXPECT_EQ(shard_->Push(1, 2, kGradients).code(), absl::StatusCode::kAborted);
}

// What a later round appended of its gradient does not touch the gradient that was voted on.
TEST_F(HeldPrepareTest, StandsBesideSlicesOfALaterRoundThatWasNotVotedOn) {
  std::vector<Entry> entries = EntriesOf(before_);
  const std::vector<float> other(6, 42);
  journal::GradientSlice slice = before_.journal().All<journal::GradientSlice>().back();
  slice.generation += 1;
  slice.parameter_id = 0;
  slice.values = other;
  entries.push_back(slice);
  const std::unique_ptr<DrivenShard> shard = Restore(entries);
  EXPECT_EQ(shard->Promise(1).at(0).state().prepared().SerializeAsString(), vote_);
  before_.Decide(Applying(TrainPlan(2, 1, 1)));
  shard->Decide(Applying(TrainPlan(2, 1, 1)));
  EXPECT_EQ(Describe(*shard), Describe(before_));
  // Its generation is not used again.
  shard->Plan(TrainPlan(3, 1, 1));
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(shard->Push(rank, 3, kGradients).ok());
  shard->Pump();
  EXPECT_GT(shard->journal().All<journal::PrepareRecord>().at(0).generation, slice.generation);
}

// The stamp that is decided may have been followed by one that nobody was told of.
TEST_F(HeldPrepareTest, IsDecidedUnderAnEarlierStampToo) {
  before_.Decide(Applying(TrainPlan(2, 1, 1)));
  std::vector<Entry> entries = EntriesOf(before_);
  auto stamped = std::get<journal::PrepareRecord>(entries[entries.size() - 2]);
  stamped.prepared.set_plan(TrainPlan(2, 1, 2).SerializeAsString());
  entries.insert(entries.end() - 1, stamped);
  EXPECT_EQ(Describe(*Restore(entries)), Describe(before_));
}

TEST(ShardCoreReplayTest, CountsStepsSinceTheProcessStarted) {
  DrivenShard before;
  before.Load();
  before.Train(1, kGradients);
  const std::unique_ptr<DrivenShard> shard = Restore(EntriesOf(before));
  EXPECT_EQ(shard->core().Describe("")->applied_steps(), 0u);
  // [M6], [A1]: these are the state's.
  EXPECT_EQ(shard->core().Describe("")->parameters(0).newton_schulz_updates(), 1u);
  EXPECT_EQ(shard->core().Describe("")->parameters(1).updates_applied(), 1u);
}

// It was voted for by a process that had the tier. No bit depends on a place.
TEST(ShardCoreReplayTest, AMoveThatIsNotPossibleAnyMoreLeavesParametersWhereTheyAre) {
  DrivenShard before;
  before.Load();
  const v1::StepPlan change = GroupChangePlan(3, 0.5, 1, 1);
  before.Plan(change);
  before.Decide(Applying(change));
  std::vector<Entry> entries = EntriesOf(before);
  const auto move = [](v1::StepPlan& plan) {
    if (!plan.has_group_change()) return;
    plan.mutable_group_change()->mutable_groups(0)->set_tier(
        ShardMemory::is_device() ? v1::TIER_HOST : v1::TIER_DEVICE);
  };
  for (Entry& entry : entries) {
    if (auto* prepare = std::get_if<journal::PrepareRecord>(&entry)) {
      v1::StepPlan plan;
      ASSERT_TRUE(plan.ParseFromString(prepare->prepared.plan()));
      move(plan);
      prepare->prepared.set_plan(plan.SerializeAsString());
    } else if (auto* decision = std::get_if<journal::DecisionRecord>(&entry)) {
      move(*decision->record.mutable_plan());
    }
  }
  const std::unique_ptr<DrivenShard> shard = Restore(entries);
  EXPECT_EQ(shard->state().applied_position(), 3u);
  EXPECT_EQ(shard->core().parameters()->Get(0).is_in_memory(),
            before.core().parameters()->Get(0).is_in_memory());
  EXPECT_EQ(shard->Read(0, 0), before.Read(0, 0));
}

TEST(ShardCoreReplayTest, AJobThatDoesNotFitIntoMemoryIsNoLoss) {
  // A disk would have room.
  if (ShardMemory::is_nvme()) return;
  DrivenShard before;
  before.Load();
  DrivenShard small(4 * ShardMemory::least_extent());
  absl::Status status;
  for (const Entry& entry : EntriesOf(before)) {
    status = small.core().Replay(entry);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("position 1: parameter b: tensor weight.1"),
            absl::string_view::npos)
      << status;
}

// Promise; registration: PREPARE, decision; initial weights: three slices, PREPARE, decision; step
// 1: two slices, PREPARE, decision.
class LostJournalTest : public testing::Test {
 protected:
  static constexpr size_t kLoadDecision = 7;
  static constexpr size_t kSlices = 8;
  static constexpr size_t kPrepare = 10;
  static constexpr size_t kDecision = 11;

  LostJournalTest() {
    before_.Load();
    before_.Train(1, kGradients);
    entries_ = EntriesOf(before_);
    EXPECT_EQ(entries_.size(), 12u);
  }
  template <typename Kind>
  Kind& At(size_t index) {
    return std::get<Kind>(entries_[index]);
  }
  void Remove(size_t index) { entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(index)); }
  v1::StepPlan PlanAt(size_t index) {
    v1::StepPlan plan;
    EXPECT_TRUE(plan.ParseFromString(At<journal::PrepareRecord>(index).prepared.plan()));
    return plan;
  }

  DrivenShard before_;
  std::vector<Entry> entries_;
};

TEST_F(LostJournalTest, IsWholeToBeginWith) { EXPECT_TRUE(ReplayAll(entries_).ok()); }

// P7, P11: what replay makes of the entries before is not what the shard voted on.
TEST_F(LostJournalTest, AVoteOnAnotherState) {
  At<journal::PrepareRecord>(kPrepare).prepared.set_state_digest(0xabc);
  ExpectLost(entries_, "was made with state digest 0000000000000abc, replay gives ");
}

TEST_F(LostJournalTest, ASliceOfAnUnknownParameter) {
  At<journal::GradientSlice>(kSlices).parameter_id = 5;
  ExpectLost(entries_, "position 3: slice of parameter_id 5, which is not on this shard");
}

TEST_F(LostJournalTest, ASliceThatDoesNotFollowTheOneBefore) {
  At<journal::GradientSlice>(kSlices).offset = 2;
  ExpectLost(entries_, "position 3: slice of parameter_id 0 has elements 2 .. 8, expecting from 0");
}

TEST_F(LostJournalTest, ASliceBeyondItsParameter) {
  const std::vector<float> values(7);
  At<journal::GradientSlice>(kSlices).values = values;
  ExpectLost(entries_, "has elements 0 .. 7, expecting from 0 and no more than 6");
}

TEST_F(LostJournalTest, ASliceOfAnotherPosition) {
  At<journal::GradientSlice>(kSlices).position = 4;
  ExpectLost(entries_, "position 4: slice of parameter_id 0, expecting position 3");
}

TEST_F(LostJournalTest, SlicesWhoseGenerationFalls) {
  At<journal::GradientSlice>(kSlices + 1).generation = 1;
  ExpectLost(entries_, "position 3: slice of generation 1 after one of generation 3");
}

TEST_F(LostJournalTest, APrepareWhoseGradientIsIncomplete) {
  Remove(kSlices);
  ExpectLost(entries_, "position 3: PREPARE of parameter_id 0 with 6 elements, its gradient has 0");
}

TEST_F(LostJournalTest, APrepareWithAGradientItDoesNotKnow) {
  At<journal::PrepareRecord>(kPrepare).prepared.mutable_sums(1)->set_missing(true);
  ExpectLost(entries_, "position 3: PREPARE of 1 gradients, there are slices of 2");
}

TEST_F(LostJournalTest, APrepareThatLeavesAParameterOut) {
  Remove(kSlices + 1);
  At<journal::PrepareRecord>(kPrepare - 1).prepared.mutable_sums()->RemoveLast();
  ExpectLost(entries_, "position 3: PREPARE says nothing of parameter b");
}

TEST_F(LostJournalTest, APrepareOfOtherBytes) {
  std::vector<float> values(4, 7);
  At<journal::GradientSlice>(kSlices + 1).values = values;
  ExpectLost(entries_, "position 3: gradient digest ");
}

TEST_F(LostJournalTest, APrepareThatHoldsNoPlan) {
  At<journal::PrepareRecord>(kPrepare).prepared.set_plan("\xff");
  ExpectLost(entries_, "PREPARE of generation 3 has 1 bytes that are no plan");
}

TEST_F(LostJournalTest, APrepareOfAnotherPosition) {
  Remove(kLoadDecision);
  entries_.erase(entries_.begin() + kSlices - 1, entries_.begin() + kSlices + 1);
  ExpectLost(entries_, "position 3: position 3 planned, expecting 2");
}

TEST_F(LostJournalTest, APrepareUnderABallotThatWasNotPromised) {
  v1::StepPlan plan = PlanAt(kPrepare);
  *plan.mutable_ballot() = MakeBallot(9);
  At<journal::PrepareRecord>(kPrepare).prepared.set_plan(plan.SerializeAsString());
  ExpectLost(entries_, "position 3: PREPARE of (ballot 9.");
}

TEST_F(LostJournalTest, APrepareWhoseRoundFalls) {
  entries_.insert(entries_.begin() + kDecision, entries_[kPrepare]);
  ExpectLost(entries_, ", round 1) after that of (ballot 1.");
}

TEST_F(LostJournalTest, ARestampWithOtherFacts) {
  journal::PrepareRecord again = At<journal::PrepareRecord>(kPrepare);
  again.prepared.set_plan(TrainPlan(1, 1, 2).SerializeAsString());
  again.prepared.set_gradient_digest(1);
  entries_.insert(entries_.begin() + kDecision, again);
  ExpectLost(entries_, "differ, both are of generation 3");
}

TEST_F(LostJournalTest, ADecisionWithoutItsPrepare) {
  Remove(kPrepare);
  ExpectLost(entries_, "position 3: decision of the plan of (ballot 1.");
  ExpectLost(entries_, "held is no PREPARE");
}

TEST_F(LostJournalTest, ADecisionOfAnotherPosition) {
  entries_.push_back(entries_[kDecision]);
  ExpectLost(entries_, "position 3: decision of position 3, expecting 4");
}

TEST_F(LostJournalTest, APromiseThatFalls) {
  entries_.push_back(entries_[0]);
  ExpectLost(entries_, "promise of ballot 1.");
}

TEST_F(LostJournalTest, APromiseAtAnotherPlace) {
  journal::PromiseRecord promise = At<journal::PromiseRecord>(0);
  promise.ballot = MakeBallot(2);
  promise.num_shards = 3;
  entries_.push_back(promise);
  ExpectLost(entries_, "position 4: promise as shard 0 of 3, before as shard 0 of 1");
}

}  // namespace
}  // namespace kaon::shard
