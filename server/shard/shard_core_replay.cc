// A shard that stands again where its journal says it stood: every entry in its order, through the
// code that made it, and quietly.
#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/shard_core.h"

namespace kaon::shard {

namespace {

// Whatever was wrong with the entry: a journal that is read back whole and does not fit is lost.
// But memory that is too small today is no fault of the journal.
absl::Status About(uint64_t position, const absl::Status& status) {
  if (status.ok()) return status;
  const absl::StatusCode code = absl::IsResourceExhausted(status)
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kDataLoss;
  return absl::Status(code, absl::StrCat("position ", position, ": ", status.message()));
}

}  // namespace

absl::Status ShardCore::Replay(const journal::Entry& entry) {
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
    v1::StepPlan plan;
    if (!plan.ParseFromString(prepare->prepared.plan())) {
      return About(machine_.applied_position() + 1,
                   absl::DataLossError(absl::StrCat("PREPARE of generation ", prepare->generation,
                                                    " has ", prepare->prepared.plan().size(),
                                                    " bytes that are no plan")));
    }
    return About(plan.position(), ReplayPrepare(plan, *prepare));
  }
  PassFailpoint(Failpoint::replay_decision);
  const v1::StepRecord& record = std::get<journal::DecisionRecord>(entry).record;
  KAON_RETURN_IF_ERROR(About(record.plan().position(), machine_.RestoreDecision(record)));
  Apply(record);
  CHECK(machine_.TakeActions().empty()) << "position " << record.plan().position();
  return absl::OkStatus();
}

absl::Status ShardCore::ReplaySlice(const journal::GradientSlice& slice) {
  if (slice.position != machine_.applied_position() + 1) {
    return absl::DataLossError(absl::StrCat("slice of parameter_id ", slice.parameter_id,
                                            ", expecting position ",
                                            machine_.applied_position() + 1));
  }
  machine_.RestoreGeneration(slice.generation);
  return gradient_replay_.Add(slice, machine_.accepted_plan() != nullptr);
}

absl::Status ShardCore::ReplayPrepare(const v1::StepPlan& plan,
                                      const journal::PrepareRecord& prepare) {
  const bool restamped = machine_.accepted_generation() == prepare.generation;
  KAON_RETURN_IF_ERROR(machine_.RestorePrepared(plan, prepare));
  appended_generation_ = prepare.generation;
  if (restamped) {
    if (plan.has_step()) accumulator_.Restamp(plan);
    return absl::OkStatus();
  }
  if (plan.has_registration()) return TryReserve(plan);
  if (!plan.has_step()) return absl::OkStatus();
  sums_.assign(prepare.prepared.sums().begin(), prepare.prepared.sums().end());
  publisher_.ExpectStep(plan.step().step());
  return gradient_replay_.Complete(plan, prepare.generation, prepare.prepared);
}

void ShardCore::FinishReplay() {
  // Counted since the process started.
  applied_steps_ = 0;
  skipped_steps_ = 0;
  gradient_replay_.Clear();
  if (parameters_ == nullptr) return;
  for (StoredParameter& parameter : parameters_->parameters()) {
    parameter.trace.non_finite_steps = 0;
    parameter.trace.non_finite_elements = 0;
    // As what it was pushed is in no journal.
    parameter.trace.first_gradient_step = 0;
  }
}

}  // namespace kaon::shard
