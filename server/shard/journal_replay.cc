#include "server/shard/journal_replay.h"

#include <glog/logging.h>

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/disk/device_error.h"

namespace kaon::shard {

namespace {

// Returns the error of the entry at `position`. An entry that is read back whole and does not fit
// the ones before means DATA_LOSS. Too little memory, a directory that is not mounted, and a device
// that fails keep their codes: the journal is not at fault.
absl::Status About(uint64_t position, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message = absl::StrCat("position ", position, ": ", status.message());
  if (disk::IsDeviceError(status)) return disk::DeviceError(message);
  const bool passes = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
  return absl::Status(passes ? status.code() : absl::StatusCode::kDataLoss, message);
}

}  // namespace

absl::Status JournalReplay::Restore(const AgreementSnapshot& facts, const v1::CheckpointPart& part,
                                    const ReadTensor& read) {
  const v1::RegisterBody& registration = facts.state.registration();
  if (IsOfNoJob(facts.state)) {
    state_.Release(part.job());
    machine_.RestoreFacts(facts, 0);
  } else {
    KAON_RETURN_IF_ERROR(state_.Reserve(registration, facts.shard, facts.num_shards));
    publisher_.Serve(registration.definition().name(), facts.state.timeline(),
                     state_.parameters()->sources());
    KAON_RETURN_IF_ERROR(state_.Load(part, facts.state.applied_step(), read));
    machine_.RestoreFacts(facts, state_.parameters()->Digests().state);
  }
  restored_position_ = part.position();
  restored_promise_ = facts.promised;
  before_restored_ = true;
  state_.ExpectNextStep();
  return absl::OkStatus();
}

absl::Status JournalReplay::Replay(const journal::Entry& entry) {
  KAON_ASSIGN_OR_RETURN(const bool in_snapshot, IsInSnapshot(entry));
  if (in_snapshot) return absl::OkStatus();
  if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
    PassFailpoint(Failpoint::replay_promise);
    return About(machine_.applied_position() + 1, machine_.RestorePromise(*promise));
  }
  if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
    PassFailpoint(Failpoint::replay_gradient);
    return About(slice->position, ReplaySlice(*slice));
  }
  if (const auto* prepare = std::get_if<journal::PrepareRecord>(&entry)) {
    PassFailpoint(Failpoint::replay_prepare);
    return ReplayPrepare(*prepare);
  }
  PassFailpoint(Failpoint::replay_decision);
  return ReplayDecision(std::get<journal::DecisionRecord>(entry).record);
}

void JournalReplay::Finish() {
  gradient_replay_.Clear();
  state_.FinishReplay();
}

absl::Status JournalReplay::ReplaySlice(const journal::GradientSlice& slice) {
  if (slice.position != machine_.applied_position() + 1) {
    return absl::DataLossError(absl::StrCat("slice of parameter_id ", slice.parameter_id,
                                            ", expecting position ",
                                            machine_.applied_position() + 1));
  }
  machine_.RestoreGeneration(slice.generation);
  return gradient_replay_.Add(slice, machine_.accepted_plan() != nullptr);
}

absl::Status JournalReplay::ReplayPrepare(const journal::PrepareRecord& prepare) {
  v1::StepPlan plan;
  if (!plan.ParseFromString(prepare.prepared.plan())) {
    return About(machine_.applied_position() + 1,
                 absl::DataLossError(absl::StrCat("PREPARE of generation ", prepare.generation,
                                                  " has ", prepare.prepared.plan().size(),
                                                  " bytes that are no plan")));
  }
  if (machine_.IsVolatile(plan)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the journal holds the vote of position ", plan.position(),
                     ", as mode journal writes it; durability must be journal"));
  }
  return About(plan.position(), ReplayPlan(plan, prepare));
}

absl::Status JournalReplay::ReplayPlan(const v1::StepPlan& plan,
                                       const journal::PrepareRecord& prepare) {
  const bool restamped = machine_.accepted_generation() == prepare.generation;
  KAON_RETURN_IF_ERROR(machine_.RestorePrepared(plan, prepare));
  gradients_.OnReplayed(prepare.generation);
  if (restamped) {
    if (plan.has_step()) accumulator_.Restamp(plan);
    return absl::OkStatus();
  }
  // Slices that wait belong to a step, and may lie in memory that this entry frees.
  if (!plan.has_step()) gradient_replay_.Clear();
  if (plan.has_registration()) {
    return state_.Reserve(plan.registration(), machine_.shard(), machine_.num_shards());
  }
  if (plan.has_restore() && !machine_.registration().has_value()) {
    return state_.Reserve(plan.restore().registration(), machine_.shard(), machine_.num_shards());
  }
  if (!plan.has_step()) return absl::OkStatus();
  state_.SetSums(prepare.prepared);
  publisher_.ExpectStep(plan.step().step());
  return gradient_replay_.Complete(plan, prepare.generation, prepare.prepared);
}

absl::Status JournalReplay::ReplayDecision(const v1::StepRecord& record) {
  // In mode INTERVAL the entry only says where a snapshot was to be taken: its decision is
  // forgotten.
  if (machine_.IsVolatile(record.plan())) return absl::OkStatus();
  KAON_RETURN_IF_ERROR(About(record.plan().position(), machine_.RestoreDecision(record)));
  KAON_RETURN_IF_ERROR(About(record.plan().position(), state_.Apply(record)));
  CHECK(machine_.TakeActions().empty()) << "position " << record.plan().position();
  return absl::OkStatus();
}

absl::StatusOr<bool> JournalReplay::IsInSnapshot(const journal::Entry& entry) {
  if (restored_position_ == 0) return false;
  if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
    return proto::Compare(promise->ballot, restored_promise_) <= 0;
  }
  if (const auto* decision = std::get_if<journal::DecisionRecord>(&entry)) {
    return IsDecidedInSnapshot(decision->record);
  }
  // The position does not matter here. A rollback may have the position of an entry that all shards
  // have forgotten, or of a vote that no coordinator heard of.
  if (before_restored_) return true;
  if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
    return slice->position <= restored_position_;
  }
  const auto& prepare = std::get<journal::PrepareRecord>(entry);
  v1::StepPlan plan;
  // Replay rejects a plan that does not parse.
  return plan.ParseFromString(prepare.prepared.plan()) && plan.position() <= restored_position_;
}

absl::StatusOr<bool> JournalReplay::IsDecidedInSnapshot(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  if (position != restored_position_ || record.plan().timeline() != machine_.timeline()) {
    return before_restored_ || position <= restored_position_;
  }
  before_restored_ = false;
  // This shard wrote both, and the same code serialized them.
  if (record.SerializeAsString() == machine_.applied_record()->SerializeAsString()) return true;
  return absl::DataLossError(absl::StrCat("position ", position,
                                          ": the journal's decision and "
                                          "that of the snapshot differ"));
}

}  // namespace kaon::shard
