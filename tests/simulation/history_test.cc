// The check of histories explains a true one and contradicts each doctored one.
#include "tests/simulation/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/model.h"

namespace kaon::simulation {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNonce = 77;
constexpr uint32_t kScale = 4;

absl::Time At(int64_t milliseconds) { return absl::FromUnixMillis(milliseconds); }

// Builds histories of two ranks in which each entry lasts 10 ms.
class HistoryBuilder : public testing::Test {
 protected:
  HistoryBuilder() : job_(TinyJob(2)), replay_(job_) {
    v1::StepPlan registration;
    registration.mutable_registration();
    Decide(registration);
  }

  std::string Contradicted() { return Contradiction(job_, log_, operations_); }

  // The first operation of a kind, and for steps and pulls of a step and a timeline.
  Operation& Find(Operation::Kind kind, uint64_t step = 0, uint64_t timeline = 1) {
    for (Operation& operation : operations_) {
      const bool by_step = kind == Operation::Kind::kStep || kind == Operation::Kind::kPull;
      if (operation.kind != kind) continue;
      if (!by_step || (operation.step == step && operation.timeline == timeline)) return operation;
    }
    ADD_FAILURE() << "no such operation";
    return operations_.front();
  }

  v1::StepRecord& Decide(v1::StepPlan plan) {
    const LogKey key{timeline_, ++position_};
    plan.set_position(key.position);
    plan.set_timeline(key.timeline);
    v1::StepRecord& record = log_[key];
    *record.mutable_plan() = std::move(plan);
    record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
    record.mutable_decision()->set_state_digest(replay_.StateDigest());
    for (int group = 0; group < job_.groups_size(); ++group) {
      record.mutable_decision()->add_norms()->set_clip_factor(1);
    }
    if (!record.plan().has_restore() && !record.plan().has_rollback()) replay_.Apply(record);
    states_[key] = replay_.state();
    return record;
  }

  void Step(uint64_t step) {
    Operation operation;
    operation.called = begin();
    operation.timeline = timeline_;
    operation.step = step;
    operation.process_nonce = kNonce;
    v1::StepPlan plan;
    v1::StepBody& body = *plan.mutable_step();
    body.set_kind(step == 0 ? v1::STEP_KIND_LOAD_WEIGHTS : v1::STEP_KIND_TRAIN);
    body.set_step(step);
    body.set_loss_scale(1);
    for (const v1::ParameterGroup& group : replay_.state().body.definition().groups()) {
      body.add_rates()->set_learning_rate(group.lr());
    }
    for (uint32_t rank = 0; rank < (step == 0 ? 1 : 2); ++rank) {
      v1::Member& member = *body.add_members();
      member.set_rank(rank);
      member.set_process_nonce(kNonce);
      member.set_token_weight(kScale);
      member.set_micro_batches(1);
    }
    operation.record = Decide(std::move(plan)).SerializeAsString();
    operation.outcome = Operation::Outcome::kDone;
    operation.returned = end();
    operations_.push_back(operation);
    // The other rank dies before it gets the record.
    operation.rank = 1;
    operation.outcome = Operation::Outcome::kUnknown;
    operation.returned = absl::InfiniteFuture();
    operation.record.clear();
    operations_.push_back(operation);
    Pull(step);
  }

  void Pull(uint64_t step) {
    for (uint32_t id = 0; id < replay_.weights().size(); ++id) {
      Operation operation;
      operation.kind = Operation::Kind::kPull;
      operation.outcome = Operation::Outcome::kDone;
      operation.called = end();
      operation.returned = end();
      operation.timeline = timeline_;
      operation.step = step;
      operation.parameter_id = id;
      operation.weights = replay_.weights()[id];
      operations_.push_back(std::move(operation));
    }
  }

  void Change() {
    Operation operation;
    operation.kind = Operation::Kind::kChange;
    operation.called = begin();
    operation.name = "0.5";
    v1::StepPlan plan;
    v1::GroupChangeBody& body = *plan.mutable_group_change();
    *body.mutable_groups() = replay_.state().body.definition().groups();
    body.mutable_groups(1)->set_lr(0.5);
    v1::GroupSetting& setting = *body.add_settings();
    setting.set_field("lr");
    setting.set_value("0.5");
    operation.position = Decide(std::move(plan)).plan().position();
    operation.outcome = Operation::Outcome::kDone;
    operation.returned = end();
    operations_.push_back(std::move(operation));
  }

  // A reader reads a checkpoint of the newest state.
  void Checkpoint() {
    Operation operation;
    operation.kind = Operation::Kind::kCheckpoint;
    operation.outcome = Operation::Outcome::kDone;
    operation.called = end();
    operation.returned = end();
    operation.name = "kept";
    operation.target = {timeline_, position_};
    operation.digest = replay_.StateDigest();
    operations_.push_back(std::move(operation));
  }

  void Restore() {
    Operation operation;
    operation.kind = Operation::Kind::kRestore;
    operation.called = begin();
    operation.name = "tiny-1-3";
    operation.target = {1, 3};
    v1::StepPlan plan;
    plan.mutable_restore()->set_checkpoint("tiny-1-3");
    plan.mutable_restore()->set_step(1);
    operation.timeline = ++timeline_;
    operation.position = Decide(std::move(plan)).plan().position();
    operation.outcome = Operation::Outcome::kDone;
    operation.returned = end();
    operations_.push_back(std::move(operation));
    replay_.Restore(states_[{1, 3}]);
    Pull(1);
  }

  // Rolls back to the state of entry `target` of timeline `of`. All shards have forgotten the
  // entries above `above`.
  void Rollback(uint64_t target, uint64_t of, uint64_t step, uint64_t above) {
    v1::StepPlan plan;
    plan.mutable_rollback()->mutable_target()->set_position(target);
    plan.mutable_rollback()->mutable_target()->set_step(step);
    ++timeline_;
    position_ = above;
    Decide(std::move(plan));
    replay_.Restore(states_[{of, target}]);
    Pull(step);
  }

  v1::JobDefinition job_;
  SerialReplay replay_;
  Log log_;
  std::deque<Operation> operations_;

 private:
  absl::Time begin() const { return At(10 * static_cast<int64_t>(log_.size())); }
  absl::Time end() const { return begin() - absl::Milliseconds(1); }

  uint64_t timeline_ = 1;
  uint64_t position_ = 0;
  std::map<LogKey, SerialReplay::State> states_;
};

// The clients load weights, train two steps, change a group and train a third step. Then the job is
// restored to the first step, and the clients train the second one again.
class HistoryTest : public HistoryBuilder {
 protected:
  HistoryTest() {
    Step(0);
    Step(1);
    Step(2);
    Checkpoint();
    Change();
    Step(3);
    Restore();
    Step(2);
  }
};

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

TEST_F(HistoryTest, TrueOneIsExplained) { EXPECT_EQ(Contradicted(), ""); }

TEST_F(HistoryTest, UnknownOutcomesAreExplainedBothWays) {
  Find(Kind::kChange).outcome = Outcome::kUnknown;
  Find(Kind::kRestore).outcome = Outcome::kUnknown;
  Operation lost = Find(Kind::kChange);
  lost.name = "0.25";
  operations_.push_back(lost);
  EXPECT_EQ(Contradicted(), "");
}

TEST_F(HistoryTest, AnotherOutcomeThanTheLogs) {
  v1::StepRecord told = log_[{1, 4}];
  told.mutable_decision()->mutable_norms(0)->set_clip_factor(0.5);
  Find(Kind::kStep, 2).record = told.SerializeAsString();
  EXPECT_THAT(Contradicted(), HasSubstr("rank 0 was told another outcome of entry 4"));
}

TEST_F(HistoryTest, LostStep) {
  log_.erase({2, 8});
  EXPECT_THAT(Contradicted(), HasSubstr("rank 0 was told another outcome of entry 8"));
}

TEST_F(HistoryTest, HoleInTheLog) {
  log_.erase({1, 4});
  EXPECT_EQ(Contradicted(), "no entry at 4");
}

TEST_F(HistoryTest, StepTwice) {
  // Steps to the same state.
  v1::StepRecord again = log_[{2, 8}];
  again.mutable_plan()->set_position(9);
  again.mutable_decision()->set_state_digest(replay_.StateDigest());
  log_[{2, 9}] = again;
  EXPECT_EQ(Contradicted(), "entry 9 is step 2, expected 3");
}

TEST_F(HistoryTest, EntryThatFoundAnotherState) {
  log_[{1, 6}].mutable_decision()->set_state_digest(1);
  EXPECT_THAT(Contradicted(), HasSubstr("entry 6 found state digest 1, the serial execution has"));
}

TEST_F(HistoryTest, GradientOfAProcessThatHasNotBegun) {
  Find(Kind::kStep, 3).process_nonce = kNonce + 1;
  EXPECT_EQ(Contradicted(), "entry 6 has a gradient of rank 0, whose process has not begun step 3");
}

TEST_F(HistoryTest, StepBegunOnlyInTheOlderTimeline) {
  for (Operation& operation : operations_) {
    if (operation.kind == Kind::kStep && operation.timeline == 2) operation.timeline = 1;
  }
  EXPECT_EQ(Contradicted(), "entry 8 has a gradient of rank 0, whose process has not begun step 2");
}

TEST_F(HistoryTest, PullOfOtherWeights) {
  Find(Kind::kPull, 2).weights[3] += 1;
  EXPECT_EQ(Contradicted(),
            "version 2 of parameter 0 was pulled with other weights than the committed entries "
            "give");
}

TEST_F(HistoryTest, PullOfTheOtherTimelinesVersion) {
  Find(Kind::kPull, 3).timeline = 2;
  EXPECT_EQ(Contradicted(), "version 3 of timeline 2 was pulled, the log has no such step");
}

TEST_F(HistoryTest, PullBeforeTheStepWasBegun) {
  Find(Kind::kPull, 3).returned = At(44);
  EXPECT_THAT(Contradicted(), HasSubstr("entry 6 was seen at"));
}

TEST_F(HistoryTest, EffectBeforeWhatCameBeforeIt) {
  // The third step is over before the second one is begun: each is well by itself.
  for (Operation& operation : operations_) {
    if (operation.kind != Kind::kStep || operation.timeline != 1 || operation.step != 2) continue;
    operation.called += absl::Seconds(1);
    operation.returned += absl::Seconds(1);
  }
  EXPECT_THAT(Contradicted(), HasSubstr("was seen at"));
}

TEST_F(HistoryTest, ChangeThatWasRefused) {
  Find(Kind::kChange).outcome = Outcome::kRefused;
  EXPECT_EQ(Contradicted(), "change 0.5 was refused and is in the log");
}

TEST_F(HistoryTest, ChangeAnsweredWithAnotherEntry) {
  Find(Kind::kChange).position = 6;
  EXPECT_EQ(Contradicted(),
            "change or deletion 0.5 was answered with entry 6, which is another one");
}

TEST_F(HistoryTest, ChangeNobodyAskedFor) {
  Find(Kind::kChange).name = "0.25";
  EXPECT_EQ(Contradicted(), "entry 5 makes change 0.5, nobody asked for it");
}

TEST_F(HistoryTest, RestoreOfAnotherState) {
  Find(Kind::kRestore).target = {1, 4};
  EXPECT_THAT(Contradicted(), HasSubstr("entry 8 found state digest"));
}

TEST_F(HistoryTest, CheckpointOfAnotherState) {
  Find(Kind::kCheckpoint).target = {1, 5};
  Find(Kind::kCheckpoint).returned = At(1000);
  EXPECT_EQ(Contradicted(), "");
  // The change leaves tensors and counters alone, the step after it does not.
  Find(Kind::kCheckpoint).target = {1, 6};
  EXPECT_EQ(Contradicted(), "checkpoint kept holds another state than that of entry 6");
}

TEST_F(HistoryTest, CheckpointOfNoEntry) {
  Find(Kind::kCheckpoint).target = {2, 9};
  EXPECT_EQ(Contradicted(),
            "checkpoint kept holds the state of entry 9 of timeline 2, the log has no such entry");
}

TEST_F(HistoryTest, CheckpointBeforeItsEntry) {
  Find(Kind::kCheckpoint).returned = At(24);
  EXPECT_THAT(Contradicted(), HasSubstr("entry 4 was seen at"));
}

TEST_F(HistoryTest, RestoreNobodyAskedFor) {
  Find(Kind::kRestore).name = "tiny-1-4";
  EXPECT_EQ(Contradicted(), "entry 7 restores a checkpoint nobody asked for");
}

TEST_F(HistoryTest, RestoreAnsweredWithAnotherEntry) {
  Find(Kind::kRestore).position = 8;
  EXPECT_EQ(Contradicted(), "restore of tiny-1-3 was answered with entry 8, which is another one");
}

TEST_F(HistoryTest, RestoreThatStaysInItsTimeline) {
  v1::StepRecord restore = log_[{2, 7}];
  log_.erase({2, 7});
  restore.mutable_plan()->set_timeline(1);
  log_[{1, 7}] = restore;
  EXPECT_THAT(Contradicted(), HasSubstr("entry 7 goes to timeline 1 from 1"));
}

TEST_F(HistoryTest, StepOfATimelineThatNothingBegan) {
  log_.erase({2, 7});
  EXPECT_EQ(Contradicted(), "entry 8 is of timeline 2, it is 1");
}

TEST_F(HistoryTest, EntryInAnothersPlace) {
  log_[{2, 8}].mutable_plan()->set_timeline(1);
  EXPECT_EQ(Contradicted(), "entry 8 is misplaced");
}

// The clients load weights, train a step, change a group and train two more steps. The rollback
// discards the change and all later entries, and also the next entry, for which some shard has
// already voted. So positions 4 and 5 are used twice. The admin requests the change again.
class HistoryOfRollbacksTest : public HistoryBuilder {
 protected:
  HistoryOfRollbacksTest() {
    Step(0);
    Step(1);
    Change();
    Step(2);
    Step(3);
    Rollback(3, 1, 1, 3);
    Step(2);
    Rollback(3, 1, 1, 6);
    Step(2);
    Change();
    Step(3);
    operations_.erase(operations_.begin() + static_cast<std::ptrdiff_t>(IndexOfChange()));
  }

 private:
  // The first answer was lost, so that both entries are of one call.
  size_t IndexOfChange() {
    size_t second = operations_.size();
    Operation* first = nullptr;
    for (size_t i = 0; i < operations_.size(); ++i) {
      if (operations_[i].kind != Operation::Kind::kChange) continue;
      if (first == nullptr) {
        first = &operations_[i];
      } else {
        second = i;
        first->position = operations_[i].position;
        first->returned = operations_[i].returned;
      }
    }
    return second;
  }
};

TEST_F(HistoryOfRollbacksTest, TrueOneIsExplained) { EXPECT_EQ(Contradicted(), ""); }

TEST_F(HistoryOfRollbacksTest, ReadOfALostStepInItsOwnTimeline) {
  // Long after: it waited for the answer.
  Find(Kind::kPull, 3).returned = At(1000);
  EXPECT_EQ(Contradicted(), "");
}

TEST_F(HistoryOfRollbacksTest, LostStepSeenAgain) {
  Find(Kind::kPull, 2, 3).weights = Find(Kind::kPull, 2, 1).weights;
  EXPECT_EQ(Contradicted(),
            "version 2 of parameter 0 was pulled with other weights than the committed entries "
            "give");
}

TEST_F(HistoryOfRollbacksTest, LostStepReadUnderTheNextTimeline) {
  Find(Kind::kPull, 3).timeline = 2;
  EXPECT_EQ(Contradicted(), "version 3 of timeline 2 was pulled, the log has no such step");
}

TEST_F(HistoryOfRollbacksTest, WorkerToldOfALostStepInTheNextTimeline) {
  Find(Kind::kStep, 2, 3).record = log_[{1, 5}].SerializeAsString();
  EXPECT_EQ(Contradicted(), "rank 0 began step 2 of timeline 3 and was told of entry 5");
}

TEST_F(HistoryOfRollbacksTest, StepThatFollowsWhatWasLost) {
  // The next timeline continues after the lost steps.
  v1::StepRecord step = log_[{2, 5}];
  step.mutable_plan()->mutable_step()->set_step(4);
  log_[{2, 5}] = step;
  EXPECT_EQ(Contradicted(), "entry 5 is step 4, expected 2");
}

TEST_F(HistoryOfRollbacksTest, RollbackToALostState) {
  v1::SnapshotPoint& target = *log_[{3, 7}].mutable_plan()->mutable_rollback()->mutable_target();
  target.set_position(6);
  target.set_step(3);
  EXPECT_EQ(Contradicted(),
            "entry 7 goes back to step 3 and the state of entry 6, which is no part of the job's "
            "history");
}

TEST_F(HistoryOfRollbacksTest, RollbackToAnotherState) {
  log_[{2, 4}].mutable_plan()->mutable_rollback()->mutable_target()->set_position(2);
  EXPECT_THAT(Contradicted(), HasSubstr("entry 4 goes back to step 1 and the state of entry 2"));
}

TEST_F(HistoryOfRollbacksTest, RollbackBelowItsTarget) {
  v1::StepRecord rollback = log_[{2, 4}];
  log_.erase({2, 4});
  rollback.mutable_plan()->set_position(3);
  log_[{2, 3}] = rollback;
  EXPECT_THAT(Contradicted(), HasSubstr("entry 3 goes back to step 1 and the state of entry 3"));
}

TEST_F(HistoryOfRollbacksTest, ChangeTwiceInOneTimeline) {
  v1::StepRecord again = log_[{3, 9}];
  again.mutable_plan()->set_position(11);
  again.mutable_decision()->set_state_digest(replay_.StateDigest());
  log_[{3, 11}] = again;
  EXPECT_EQ(Contradicted(), "entry 11 makes change 0.5 again");
}

TEST_F(HistoryOfRollbacksTest, LostChangeThatWasRefused) {
  Find(Kind::kChange).outcome = Outcome::kRefused;
  EXPECT_EQ(Contradicted(), "change 0.5 was refused and is in the log");
}

TEST_F(HistoryOfRollbacksTest, LostStepThatNobodyBegan) {
  for (Operation& operation : operations_) {
    if (operation.kind == Kind::kStep && operation.timeline == 1 && operation.step == 3) {
      operation.process_nonce = kNonce + 1;
    }
  }
  EXPECT_EQ(Contradicted(), "entry 6 has a gradient of rank 0, whose process has not begun step 3");
}

}  // namespace
}  // namespace kaon::simulation
