// Replay of the journal into the machine. The checks are those of messages, but no answers are
// sent.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/config/loss_remedy.h"
#include "server/mutation/mutation.h"
#include "server/shard/agreement/plan_check.h"
#include "server/shard/agreement/shard_machine.h"

namespace kaon::shard {

absl::Status ShardMachine::RestorePromise(const journal::PromiseRecord& promise) {
  if (proto::Compare(promise.ballot, promised_) <= 0) {
    return absl::DataLossError(absl::StrCat("promise of ballot ", proto::ToString(promise.ballot),
                                            " after ", proto::ToString(promised_)));
  }
  if (promise.shard >= promise.num_shards ||
      (placed_ && (promise.shard != shard_ || promise.num_shards != num_shards_))) {
    return absl::DataLossError(absl::StrCat("promise as shard ", promise.shard, " of ",
                                            promise.num_shards, ", before as shard ", shard_,
                                            " of ", num_shards_));
  }
  placed_ = true;
  shard_ = promise.shard;
  num_shards_ = promise.num_shards;
  promised_ = promise.ballot;
  promise_durable_ = true;
  return absl::OkStatus();
}

void ShardMachine::RestoreGeneration(uint64_t generation) {
  if (Mutated(Mutation::kGenerationsReused)) return;
  next_generation_ = std::max(next_generation_, generation + 1);
}

void ShardMachine::RestoreFacts(const AgreementSnapshot& facts, uint64_t state_digest) {
  placed_ = true;
  shard_ = facts.shard;
  num_shards_ = facts.num_shards;
  promised_ = facts.promised;
  promise_durable_ = true;
  applied_position_ = facts.state.applied_position();
  applied_step_ = facts.state.applied_step();
  timeline_ = facts.state.timeline();
  config_revision_ = facts.state.config_revision();
  weights_loaded_ = facts.state.weights_loaded();
  applied_record_ = facts.state.applied_record();
  if (facts.state.has_registration()) registration_ = facts.state.registration();
  state_digest_ = state_digest;
  // Reset if the journal replaces the state later. Without a job no vote is forgotten.
  rollback_needed_ =
      registration_.has_value() && interval_steps_ > 0 && !Mutated(Mutation::kForgottenVotesUnsaid);
  RestoreGeneration(facts.newest_generation);
}

absl::Status ShardMachine::RestorePrepared(const v1::StepPlan& plan,
                                           const journal::PrepareRecord& prepare) {
  const bool beyond = IsBeyondForgotten(plan);
  if (!beyond) KAON_RETURN_IF_ERROR(CheckPosition(plan));
  if (proto::Compare(plan.ballot(), promised_) > 0) {
    return absl::DataLossError(absl::StrCat("PREPARE of ", DescribeStamp(plan),
                                            ", promised is ballot ", proto::ToString(promised_)));
  }
  // Replay must give the state that this shard held when it voted (P7, P11).
  if (!beyond && prepare.prepared.state_digest() != state_digest_) {
    return absl::DataLossError(
        absl::StrFormat("the PREPARE of %s was made with state digest %016x, replay gives %016x",
                        DescribeStamp(plan), prepare.prepared.state_digest(), state_digest_));
  }
  v1::Prepared facts = prepare.prepared;
  facts.clear_plan();
  if (accepted_.has_value()) {
    // Rule 4: "A shard refuses (ballot, round) at or below its PREPARE's."
    if (proto::CompareRound(plan, accepted_->plan) <= 0) {
      return absl::DataLossError(absl::StrCat("PREPARE of ", DescribeStamp(plan), " after that of ",
                                              DescribeStamp(accepted_->plan)));
    }
    // Rule 2: a re-stamped vote differs only in (ballot, round).
    if (accepted_->generation == prepare.generation &&
        (!proto::AlikeButForRound(plan, accepted_->plan) ||
         facts.SerializeAsString() != accepted_->facts->SerializeAsString())) {
      return absl::DataLossError(absl::StrCat(
          "PREPARE of ", DescribeStamp(plan), " and that of ", DescribeStamp(accepted_->plan),
          " differ, both are of generation ", prepare.generation));
    }
  }
  if (accepted_generation() != prepare.generation && prepare.generation + 1 < next_generation_) {
    return absl::DataLossError(absl::StrCat("PREPARE of generation ", prepare.generation,
                                            " after generation ", next_generation_ - 1));
  }
  RestoreGeneration(prepare.generation);
  accepted_ = Accepted{plan, prepare.generation, std::move(facts)};
  held_ = Held{plan, prepare.prepared, /*told=*/true};
  return absl::OkStatus();
}

absl::Status ShardMachine::CheckRestored(const v1::StepRecord& record) const {
  // These entries do not continue from the restored state.
  const v1::StepPlan& plan = record.plan();
  if (!total_digest_.has_value() || plan.has_restore() || plan.has_rollback() ||
      plan.has_job_deletion()) {
    return absl::OkStatus();
  }
  if (record.decision().state_digest() == *total_digest_) return absl::OkStatus();
  return absl::DataLossError(config::LossOfShard(absl::StrFormat(
      "what the shards took from checkpoint %s has state digest %016x, its manifest has %016x",
      applied_record_->plan().restore().checkpoint(), record.decision().state_digest(),
      *total_digest_)));
}

absl::Status ShardMachine::RestoreDecision(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  if (plan.position() != applied_position_ + 1 && !IsBeyondForgotten(plan)) {
    return absl::DataLossError(absl::StrCat("decision of position ", plan.position(),
                                            ", expecting ", applied_position_ + 1));
  }
  // Accept the decision of any stamp of the vote: a later stamp may have been on its way to disk.
  if (!held_.has_value() || !proto::AlikeButForRound(plan, held_->plan)) {
    return absl::DataLossError(absl::StrCat(
        "decision of the plan of ", DescribeStamp(plan), ", held is ",
        held_.has_value() ? absl::StrCat("another one, of ", DescribeStamp(held_->plan))
                          : std::string("no PREPARE")));
  }
  KAON_RETURN_IF_ERROR(
      CheckDecision(registration_.has_value() ? &*registration_ : nullptr, record));
  KAON_RETURN_IF_ERROR(CheckRestored(record));
  applying_ = record;
  return absl::OkStatus();
}

}  // namespace kaon::shard
