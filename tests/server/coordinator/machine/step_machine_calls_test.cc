#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "server/coordinator/machine/step_machine.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/mid_step.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StepMachineCallsTest, LossScaleComesFromTheRecordBefore) {
  MidStep mid;
  v1::ShardState state = mid.state();
  state.mutable_applied_record()->mutable_decision()->set_next_loss_scale(512);
  MachineHarness machine;
  machine.Hold(state);
  ASSERT_TRUE(machine.Join(0, 1).ok() && machine.Join(1, 2).ok());
  ASSERT_TRUE(machine.Begin(0, 2).ok() && machine.Begin(1, 2).ok());
  EXPECT_EQ(machine.SentPlan(0)->step().loss_scale(), 512);
}

TEST(StepMachineCallsTest, PlanCarriesRatesWeightsAndRevision) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.VoteAndApply();
  v1::BeginStepRequest first = machine.BeginRequest(0, 3);
  first.set_learning_rate_multiplier(0.5);
  first.set_token_weight(3);
  v1::BeginStepRequest second = machine.BeginRequest(1, 3);
  second.set_learning_rate_multiplier(0.5);
  second.set_micro_batches(4);
  const std::string trace(32, 'a');
  second.set_traceparent(absl::StrCat("00-", trace, "-b7ad6b7169203331-01"));
  ASSERT_TRUE(machine.Begin(first).ok() && machine.Begin(second).ok());
  const v1::StepPlan plan = *machine.SentPlan(1);
  EXPECT_EQ(plan.position(), mid.plan().position() + 1);
  EXPECT_EQ(plan.config_revision(), 1);
  EXPECT_EQ(plan.step().rates(0).learning_rate(), 0.02 * 0.5);
  EXPECT_EQ(plan.step().rates(1).learning_rate(), 0.001 * 0.5);
  EXPECT_EQ(plan.step().members(0).token_weight(), 3);
  EXPECT_EQ(plan.step().members(0).micro_batches(), 1);
  EXPECT_EQ(plan.step().members(1).micro_batches(), 4);
  EXPECT_EQ(absl::BytesToHexString(machine.sent(1).back().trace_id()), trace);
}

// The order of the begins does not matter: rank 0 counts in a tie, otherwise most ranks.
TEST(StepMachineCallsTest, TheRankWithAnotherMultiplierIsRefusedAndNoOther) {
  for (const std::vector<double>& multipliers :
       {std::vector<double>{1, 2}, {1, 2, 1}, {2, 1, 1}, {1, 1, 2}}) {
    const auto odd = static_cast<uint32_t>(std::find(multipliers.begin(), multipliers.end(), 2) -
                                           multipliers.begin());
    const auto ranks = static_cast<uint32_t>(multipliers.size());
    const absl::Status refusal = absl::InvalidArgumentError(
        absl::StrCat("learning_rate_multiplier is 2 from rank ", odd,
                     ", the ranks agreed on 1 for step 1: use the same on every rank"));
    for (uint32_t first = 0; first < ranks; ++first) {
      MachineHarness machine;
      machine.Train(ranks);
      std::map<uint32_t, CallId> streams;
      for (uint32_t i = 0; i < ranks; ++i) {
        const uint32_t rank = (first + i) % ranks;
        v1::BeginStepRequest begin = machine.BeginRequest(rank, 1);
        begin.set_learning_rate_multiplier(multipliers[rank]);
        const absl::Status begun = machine.Begin(begin).status();
        // Refused before it could await, it is told at once.
        const bool is_refused = rank == odd && i + 1 == ranks;
        EXPECT_EQ(begun, is_refused ? refusal : absl::OkStatus());
        if (!is_refused) streams[rank] = machine.Await(rank, 1);
      }
      const CallId late = machine.Await(odd, 1);
      for (const auto& [rank, stream] : streams) {
        if (rank == odd) {
          EXPECT_EQ(machine.ended(stream), refusal);
        } else {
          EXPECT_FALSE(machine.ended(stream).has_value()) << rank;
        }
      }
      EXPECT_EQ(machine.ended(late)->code(), absl::StatusCode::kUnavailable);
      EXPECT_FALSE(machine.SentPlan(0).has_value());
      // A replacement that does as the others do.
      ASSERT_TRUE(machine.Join(odd, 900).ok());
      ASSERT_TRUE(machine.Begin(odd, 1).ok());
      EXPECT_EQ(machine.SentPlan(0)->step().rates(0).learning_rate(), 0.02);
    }
  }
}

TEST(StepMachineCallsTest, AGroupHasItsOwnFactorAndRanksAgreeOnIt) {
  MachineHarness machine;
  machine.Train(3);
  for (uint32_t rank : {0, 1, 2}) {
    v1::BeginStepRequest begin = machine.BeginRequest(rank, 1);
    begin.set_learning_rate_multiplier(0.5);
    // A factor of 1 is no factor.
    (*begin.mutable_group_multipliers())["muon"] = 1;
    (*begin.mutable_group_multipliers())["adamw"] = rank == 0 ? 0.2 : 0.1;
    const absl::Status begun = machine.Begin(begin).status();
    EXPECT_EQ(begun, absl::OkStatus());
    if (rank == 0) {
      // Immutable, as the rest of the share.
      begin.clear_group_multipliers();
      EXPECT_EQ(machine.Begin(begin).status().code(), absl::StatusCode::kAlreadyExists);
    }
  }
  EXPECT_FALSE(machine.SentPlan(0).has_value()) << "rank 0 differs from most ranks";
  ASSERT_TRUE(machine.Join(0, 900).ok());
  v1::BeginStepRequest begin = machine.BeginRequest(0, 1);
  begin.set_learning_rate_multiplier(0.5);
  (*begin.mutable_group_multipliers())["adamw"] = 0.1;
  ASSERT_TRUE(machine.Begin(begin).ok());
  EXPECT_EQ(machine.SentPlan(0)->step().rates(0).learning_rate(), 0.02 * 0.5);
  EXPECT_EQ(machine.SentPlan(0)->step().rates(1).learning_rate(), 0.001 * 0.5 * 0.1);
}

TEST(StepMachineCallsTest, FactorsOfGroupsThatNoStepCanHaveAreRefused) {
  MachineHarness machine;
  machine.Train(1);
  const auto refusal = [&machine](const std::string& group, double factor) {
    v1::BeginStepRequest begin = machine.BeginRequest(0, 1);
    (*begin.mutable_group_multipliers())[group] = factor;
    return machine.Begin(begin).status();
  };
  EXPECT_EQ(refusal("sgd", 0.5),
            absl::InvalidArgumentError("group_multipliers names group \"sgd\", "
                                       "must be one of muon, adamw"));
  for (double factor : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(refusal("adamw", factor),
              absl::InvalidArgumentError(absl::StrCat("group_multipliers of group \"adamw\" is ",
                                                      factor, ", must be finite and >= 0")));
  }
  EXPECT_THAT(refusal("muon", 1e41).message(),
              HasSubstr("group muon: lr 0.02 * learning_rate_multiplier 1 * multiplier of the "
                        "group 1e+41 is 2e+39, must be 0 .. 3.40282e+38"));
  EXPECT_FALSE(machine.SentPlan(0).has_value());
  EXPECT_EQ(refusal("muon", 0), absl::OkStatus());
  EXPECT_EQ(machine.SentPlan(0)->step().rates(0).learning_rate(), 0);
}

TEST(StepMachineCallsTest, TooManyContributionsAreRefusedWithTheArithmetic) {
  v1::JobDefinition job = TestJob();
  for (int i = 0; i < 3000; ++i) AddParameter(job, absl::StrCat("extra", i, ".b"), {1});
  MachineHarness machine;
  machine.Train(job);
  v1::BeginStepRequest begin = machine.BeginRequest(0, 1);
  begin.set_micro_batches(698);
  const auto refused = machine.Begin(begin);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  // 2^22 / (3005 parameters * 2 workers).
  EXPECT_THAT(refused.status().message(), HasSubstr("micro_batches is 698, must be 1 .. 697"));
  begin.set_micro_batches(697);
  EXPECT_TRUE(machine.Begin(begin).ok());
}

TEST(StepMachineCallsTest, SharesThatNoShardCouldStepWithAreRefused) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.VoteAndApply();
  v1::BeginStepRequest begin = machine.BeginRequest(0, 3);
  for (double multiplier : {1e41, 1e308}) {
    begin.set_learning_rate_multiplier(multiplier);
    const auto refused = machine.Begin(begin);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(),
                HasSubstr("group muon: lr 0.02 * learning_rate_multiplier 1"));
  }
  begin.set_learning_rate_multiplier(1);
  begin.set_token_weight(1e-39);
  const auto light = machine.Begin(begin);
  EXPECT_EQ(light.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(light.status().message(), HasSubstr("token_weight is 1e-39, must be 1.17549e-38"));
  begin.set_token_weight(1);
  EXPECT_TRUE(machine.Begin(begin).ok());
}

// Each factor fits, and so do any two of them.
TEST(StepMachineCallsTest, RateThatAParametersOwnMultiplierBreaksIsRefused) {
  MachineHarness machine;
  machine.Hold();
  v1::JobDefinition job = TestJob(1);
  job.mutable_parameters(2)->set_lr_multiplier(1e20);
  ASSERT_TRUE(machine.Register(job).ok());
  ASSERT_TRUE(machine.Join(0, 100).ok());
  ASSERT_TRUE(machine.Begin(0, 0).ok());
  machine.VoteAndApply();
  const std::string phase = machine.phase();
  v1::BeginStepRequest begin = machine.BeginRequest(0, 1);
  begin.set_learning_rate_multiplier(1e30);
  const absl::Status refused = machine.Begin(begin).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "parameter layer1.w, group muon: lr 0.02 * learning_rate_multiplier 1e+30 * "
            "lr_multiplier 1e+20 is 2e+48, must be 0 .. 3.40282e+38");
  EXPECT_EQ(machine.phase(), phase);
  EXPECT_FALSE(machine.SentPlan(0).has_value());
  begin.set_learning_rate_multiplier(1e15);
  ASSERT_TRUE(machine.Begin(begin).ok());
  EXPECT_EQ(machine.SentPlan(0)->step().rates(0).learning_rate(), 0.02 * 1e15);
}

TEST(StepMachineCallsTest, BeginIsImmutablePerAttemptAndStep) {
  MidStep mid;
  EXPECT_TRUE(mid.old().Begin(0, 2).ok());
  v1::BeginStepRequest other = mid.old().BeginRequest(0, 2);
  other.set_token_weight(9);
  EXPECT_EQ(mid.old().Begin(other).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(StepMachineCallsTest, BeginOfOtherStepsNamesBoth) {
  MidStep mid;
  const auto above = mid.old().Begin(0, 5);
  EXPECT_EQ(above.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(above.status().message(), "step 5 begun, expecting 2");
  mid.old().VoteAndApply();
  const auto old = mid.old().Begin(0, 1);
  EXPECT_EQ(old.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(old.status().message(), "step 1 begun, the newest applied step is 2");
  EXPECT_EQ(mid.old().Begin(0, 2)->record().plan().step().step(), 2);
}

TEST(StepMachineCallsTest, JoinIsIdempotentPerProcessAndTakesTheRankFromAnother) {
  MachineHarness machine;
  machine.Train();
  const auto first = machine.Join(0, 100);
  EXPECT_EQ(first->attempt().SerializeAsString(),
            machine.Join(0, 100)->attempt().SerializeAsString());
  const auto second = machine.Join(0, 200);
  EXPECT_GT(proto::Compare(second->attempt(), first->attempt()), 0);
  EXPECT_EQ(second->process_nonce(), 200);
  v1::JoinWorkerRequest late;
  late.set_job("tiny");
  late.set_process_nonce(100);
  *late.mutable_previous_attempt() = first->attempt();
  const auto refused = machine.Join(late);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(refused.status().message(), "rank 0 was taken by another process");
}

TEST(StepMachineCallsTest, AwaitTellsPlanThenRecordThenEnds) {
  MidStep mid;
  const CallId await = mid.old().Await(0, 2);
  ASSERT_EQ(mid.old().events(await).size(), 1);
  EXPECT_EQ(mid.old().events(await)[0].planned().round(), mid.plan().round());
  EXPECT_EQ(proto::Compare(mid.old().events(await)[0].planned().ballot(), mid.plan().ballot()), 0);
  const v1::StepRecord record = mid.old().VoteAndApply();
  ASSERT_EQ(mid.old().events(await).size(), 2);
  EXPECT_EQ(mid.old().events(await)[1].decided().SerializeAsString(), record.SerializeAsString());
  EXPECT_EQ(mid.old().ended(await), absl::OkStatus());
  // And again, for a worker whose stream broke.
  const CallId late = mid.old().Await(1, 2);
  EXPECT_EQ(mid.old().ended(late), absl::OkStatus());
}

TEST(StepMachineCallsTest, SkippedInitialWeightsMayBeLoadedAgain) {
  MachineHarness machine;
  machine.Hold();
  ASSERT_TRUE(machine.Register(TestJob(1)).ok());
  ASSERT_TRUE(machine.Join(0, 1).ok());
  ASSERT_TRUE(machine.Begin(0, 0).ok());
  const v1::StepPlan plan = *machine.SentPlan(0);
  EXPECT_EQ(plan.step().kind(), v1::STEP_KIND_LOAD_WEIGHTS);
  const CallId await = machine.Await(0, 0);
  v1::ShardToCoordinator bad;
  *bad.mutable_prepared() = machine.VoteFor(plan, 0);
  bad.mutable_prepared()->mutable_first_non_finite()->set_parameter_id(1);
  machine.FromShard(0, bad);
  machine.Vote(1, plan);
  EXPECT_EQ(machine.events(await).back().decided().decision().outcome(), v1::OUTCOME_SKIP);
  machine.Applied(0, 2);
  machine.Applied(1, 2);
  EXPECT_EQ(machine.Begin(0, 1).status().code(), absl::StatusCode::kUnavailable);
  machine.ClearSent();
  ASSERT_TRUE(machine.Begin(0, 0).ok());
  machine.VoteAndApply();
  EXPECT_TRUE(machine.Begin(0, 1).ok());
}

TEST(StepMachineCallsTest, RegistrationIsAnsweredOnceEveryShardAppliedIt) {
  MachineHarness machine;
  machine.Hold();
  const auto job = machine.Register(TestJob());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->placement().num_shards(), 2);
  EXPECT_EQ(job->timeline(), 1);
  EXPECT_THAT(job->shard_addresses(), ::testing::ElementsAre("shard:0", "shard:1"));
  // An equal one attaches.
  EXPECT_TRUE(machine.Register(TestJob()).ok());
  v1::JobDefinition other = TestJob();
  other.set_max_grad_norm(7);
  const auto refused = machine.Register(other);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.status().message(), HasSubstr("max_grad_norm"));
}

// 256 workers may be started at once.
TEST(StepMachineCallsTest, RegistrationsBeyondThoseThatMayWaitAreToldToComeAgain) {
  MachineHarness machine;
  machine.Hold();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob();
  constexpr CallId kFirst = 1000;
  constexpr CallId kLast = kFirst + 64;
  for (CallId call = kFirst; call <= kLast; ++call) machine.machine().Register(call, request);
  machine.Tick();
  EXPECT_EQ(machine.registered(kLast).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(machine.registered(kLast).message(), "64 registrations are waiting already");
  machine.VoteAndApply();
  for (CallId call = kFirst; call < kLast; ++call) EXPECT_TRUE(machine.registered(call).ok());
  machine.machine().Register(kLast + 1, request);
  machine.Tick();
  EXPECT_TRUE(machine.registered(kLast + 1).ok());
}

TEST(StepMachineCallsTest, RegistrationAShardRefusesIsGivenUpAndAnotherMayFollow) {
  MachineHarness machine;
  machine.Hold();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob();
  machine.machine().Register(1000, request);
  machine.Tick();
  const v1::StepPlan first = *machine.SentPlan(1);
  machine.RefusePlan(1, "needs 9 bytes, has 8", first);
  EXPECT_EQ(machine.registered(1000).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(machine.phase(), "idle: no job is registered");
  machine.ClearSent();
  *request.mutable_definition() = TestJob(1);
  machine.machine().Register(1001, request);
  // A copy of it that comes late says nothing of the next one.
  machine.RefusePlan(1, "needs 9 bytes, has 8", first);
  machine.VoteAndApply();
  EXPECT_TRUE(machine.registered(1001).ok()) << machine.registered(1001);
}

// It would be refused for ever.
TEST(StepMachineCallsTest, StepAShardRefusesStopsTheJobForThatReason) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  const CallId await = machine.Await(0, 2);
  const std::string why = "decide() version 1 planned, this shard knows 2";
  machine.RefusePlan(1, why, mid.plan());
  ASSERT_TRUE(machine.ended(await).has_value());
  EXPECT_EQ(machine.ended(await)->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(machine.ended(await)->message(), "step 2 refused by shard 1: " + why);
  EXPECT_EQ(machine.Begin(0, 2).status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(machine.phase(), StartsWith("stopped: INTERNAL: step 2 refused by shard 1: " + why));
  machine.ClearSent();
  machine.Tick();
  EXPECT_FALSE(machine.SentPlan(1).has_value());
  // Whether or not the shards are still heard of.
  machine.Tick(absl::Seconds(10));
  EXPECT_EQ(machine.GetJob()->stopped_reason(), "INTERNAL: step 2 refused by shard 1: " + why);
}

TEST(StepMachineCallsTest, RefusalsOfOtherMessagesThanThePlanChangeNothing) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  const CallId await = machine.Await(0, 2);
  v1::StepPlan other = mid.plan();
  other.set_position(other.position() - 1);
  machine.RefusePlan(1, "bad", other);
  other = mid.plan();
  other.mutable_ballot()->set_counter(other.ballot().counter() - 1);
  machine.RefusePlan(1, "bad", other);
  machine.RefusePlan(1, "bad", mid.plan(), other.ballot());
  machine.RefusePlan(1, "old", mid.plan(), std::nullopt, v1::REFUSAL_REASON_STALE_PLAN);
  machine.RefuseDecision(1, "bad", mid.plan());
  EXPECT_FALSE(machine.ended(await).has_value());
  // Another attempt of rank 1 makes another round: what was said of the first is late.
  ASSERT_TRUE(machine.Join(1, 201).ok());
  ASSERT_TRUE(machine.Begin(1, 2).ok());
  ASSERT_EQ(machine.SentPlan(1)->round(), mid.plan().round() + 1);
  machine.RefusePlan(1, "bad", mid.plan());
  EXPECT_FALSE(machine.ended(await).has_value());
  machine.VoteAndApply();
  EXPECT_TRUE(machine.ended(await).has_value());
  EXPECT_TRUE(machine.Begin(0, 3).ok());
}

// It is final, so that nothing else can be put in its place, and would be refused for ever.
TEST(StepMachineCallsTest, DecisionAShardRefusesStopsTheJobForThatReason) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  for (int shard : {0, 1}) machine.Vote(shard, mid.plan());
  ASSERT_TRUE(machine.SentRecord(1).has_value());
  const std::string why = "clip factor of group 'adamw' is 0, expecting (0, 1]";
  // Of the plan, or of another decision: late.
  machine.RefusePlan(1, why, mid.plan());
  v1::StepPlan other = mid.plan();
  other.set_round(other.round() + 1);
  machine.RefuseDecision(1, why, other);
  EXPECT_TRUE(machine.Begin(0, 3).ok());
  machine.RefuseDecision(1, why, mid.plan());
  EXPECT_THAT(machine.phase(),
              StartsWith("stopped: INTERNAL: decision of step 2 refused by shard 1: " + why));
  EXPECT_EQ(machine.machine().Snapshot().job->stopped_reason(),
            "INTERNAL: decision of step 2 refused by shard 1: " + why);
  EXPECT_EQ(machine.Begin(1, 3).status().message(),
            "decision of step 2 refused by shard 1: " + why);
  machine.ClearSent();
  machine.Applied(0, mid.plan().position());
  machine.Tick();
  EXPECT_FALSE(machine.SentRecord(1).has_value());
}

// The one shard has lost the decision it had applied, and holds its PREPARE again.
TEST(StepMachineCallsTest, WorkersForgottenInARereadAreToldToJoinAgain) {
  MachineHarness machine(1);
  machine.Hold();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob(1);
  machine.machine().Register(1000, request);
  machine.Tick();
  const std::optional<v1::StepPlan> registration = machine.SentPlan(0);
  ASSERT_TRUE(registration.has_value());
  machine.VoteAndApply();
  ASSERT_TRUE(machine.Join(0, 100).ok());
  ASSERT_TRUE(machine.Begin(0, 0).ok());
  const CallId await = machine.Await(0, 0);
  machine.machine().OnShardDisconnected(0);
  machine.machine().OnShardConnected(0);
  v1::ShardState state;
  *state.mutable_prepared() = machine.VoteFor(*registration, 0);
  machine.State(0, state);
  ASSERT_TRUE(machine.ended(await).has_value());
  EXPECT_EQ(machine.ended(await)->code(), absl::StatusCode::kAborted);
  machine.Applied(0, 1);
  machine.ClearSent();
  ASSERT_TRUE(machine.Join(0, 100).ok());
  ASSERT_TRUE(machine.Begin(0, 0).ok());
  EXPECT_TRUE(machine.SentPlan(0).has_value());
}

// Rule 4: "A promise withdraws nothing": a vote that is gone was lost, and so is what it stood for.
TEST(StepMachineCallsTest, DecisionAShardHasLostItsVoteForStopsTheJobWithDataLoss) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  const v1::RefusalReason stale = v1::REFUSAL_REASON_STALE_PLAN;
  const std::string why = "decision of position 4, held is no PREPARE";
  // Nothing is decided yet; then what is refused is another decision.
  machine.RefuseDecision(1, why, mid.plan(), stale);
  for (int shard : {0, 1}) machine.Vote(shard, mid.plan());
  v1::StepPlan other = mid.plan();
  other.set_position(other.position() - 1);
  machine.RefuseDecision(1, why, other, stale);
  EXPECT_TRUE(machine.Begin(0, 3).ok());
  machine.RefuseDecision(1, why, mid.plan(), stale);
  EXPECT_THAT(machine.phase(),
              StartsWith("stopped: DATA_LOSS: decision of step 2 refused by shard 1: " + why));
  machine.ClearSent();
  machine.Tick();
  EXPECT_FALSE(machine.SentRecord(1).has_value());
  // A new reading finds out how it is.
  machine.machine().OnShardConnected(1);
  machine.Tick();
  EXPECT_TRUE(machine.SentPromise(0));
}

// A worker that restarts a few times does not notice; one that never stops waits a second each
// time.
TEST(StepMachineCallsTest, NewAttemptsOfARankAreLimited) {
  MachineHarness machine;
  machine.Train();
  // Train has joined once.
  for (uint64_t nonce = 200; nonce < 203; ++nonce) ASSERT_TRUE(machine.Join(1, nonce).ok());
  EXPECT_EQ(machine.Join(1, 300).status(),
            absl::UnavailableError("rank 1 was taken 4 times in short order, join again in 1s"));
  // The process that has the rank, and other ranks, join as they like.
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(machine.Join(1, 202).ok());
  EXPECT_TRUE(machine.Join(0, 300).ok());
  EXPECT_TRUE(machine.Begin(1, 1).ok());
  for (int shard : {0, 1}) machine.Applied(shard, 0);
  machine.Tick(absl::Milliseconds(900));
  EXPECT_FALSE(machine.Join(1, 300).ok());
  for (int shard : {0, 1}) machine.Applied(shard, 0);
  machine.Tick(absl::Milliseconds(100));
  EXPECT_TRUE(machine.Join(1, 300).ok());
}

}  // namespace
}  // namespace kaon::coordinator
