#include "server/shard/applied_state.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "job/settings.h"
#include "kernels/float_bits.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/snapshot/checkpoint_restore.h"
#include "server/shard/snapshot/snapshot_tensors.h"

namespace kaon::shard {

namespace {

// Returns the clip factor of its norm group; 1 for a group that is exempt ([C3], [C7]).
double ClipFactorOf(const v1::StepDecision& decision, int group, const std::string& norm_group) {
  if (decision.norms(group).exempt()) return 1;
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    if (norm.norm_group() == norm_group) return norm.clip_factor();
  }
  return 1;
}

// Logs that the update of `step` was not applied to its parameter ([T10]).
void NoteFault(const DecidedUpdate& update, uint64_t step, monitor::EventCounts* counts) {
  if (counts != nullptr) counts->Add(monitor::Event::kWeightsKept);
  const bool too_large = update.result.fault == kernels::UpdateFault::kTooLarge;
  LOG_EVERY_T(ERROR, 1)
      << "step " << step << ": parameter " << update.parameter->name << " keeps its weights: "
      << (too_large ? "the norm of its orthogonalized update is more than correct arithmetic "
                      "gives; check this machine with kaonctl verify-numerics, and the "
                      "group's Newton-Schulz options"
                    : "its update is not finite; lower the group's learning rate or decay");
}

}  // namespace

AppliedState::AppliedState(const ShardCoreOptions& options, const Siblings& siblings)
    : options_(options),
      host_(siblings.host),
      machine_(siblings.machine),
      accumulator_(siblings.accumulator),
      publisher_(siblings.publisher),
      gradients_(siblings.gradients),
      counts_(siblings.counts),
      speculation_(*options.backend, accumulator_, publisher_),
      scrub_(options.scrub_steps) {}

absl::Status AppliedState::Reserve(const v1::RegisterBody& registration, uint32_t shard,
                                   uint32_t num_shards) {
  const absl::Status status = TryReserve(registration, shard, num_shards);
  if (!status.ok()) {
    parameters_.reset();
    FreeBackend();
  }
  return status;
}

// Releases the memory that the backend has reserved for the parameters.
void AppliedState::FreeBackend() {
  const absl::Status freed = options_.backend->Reserve({});
  if (!freed.ok()) LOG(WARNING) << "the backend keeps a reservation: " << freed;
}

void AppliedState::Release(const std::string& job) {
  // Snapshots, the journal, pushes and pulls read this memory.
  freezes_.EndAll();
  speculation_.End();
  DropMoves();
  gradients_.Withdraw();
  accumulator_.Release(job);
  publisher_.StopServing(job);
  sums_.clear();
  lineage_ = {};
  parameters_.reset();
  FreeBackend();
}

absl::Status AppliedState::TryReserve(const v1::RegisterBody& registration, uint32_t shard,
                                      uint32_t num_shards) {
  // An earlier, withdrawn registration releases its memory first.
  freezes_.EndAll();
  publisher_.DropCopies();
  gradients_.Withdraw();
  DropMoves();
  accumulator_.FreeSums();
  parameters_.reset();
  KAON_ASSIGN_OR_RETURN(parameters_,
                        ParameterStore::Create({*options_.store, options_.nvme}, *options_.backend,
                                               registration, shard, num_shards));
  KAON_RETURN_IF_ERROR(parameters_->ReserveWorkspace());
  return accumulator_.Reserve(registration, shard, parameters_->OnDisk());
}

absl::Status AppliedState::Apply(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  PassFailpoint(Failpoint::apply_begin);
  if (plan.has_registration()) {
    if (applied) publisher_.Serve(plan.job(), plan.timeline(), parameters_->sources());
  } else if (plan.has_restore()) {
    KAON_RETURN_IF_ERROR(ApplyRestore(plan));
  } else if (plan.has_rollback()) {
    KAON_RETURN_IF_ERROR(ApplyRollback(plan));
  } else if (plan.has_job_deletion()) {
    Release(plan.job());
  } else if (plan.has_group_change()) {
    return ApplyGroupChange(record);
  } else if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    if (applied) KAON_RETURN_IF_ERROR(LoadWeights());
  } else {
    KAON_RETURN_IF_ERROR(scrub_.Check(*parameters_, publisher_));
    KAON_RETURN_IF_ERROR(ApplyTrainStep(record));
    ++(applied ? applied_steps_ : skipped_steps_);
  }
  FinishApply(plan.position());
  ExpectNextStep();
  return absl::OkStatus();
}

void AppliedState::FinishApply(uint64_t position) {
  speculation_.End();
  PassFailpoint(Failpoint::apply_end);
  const uint64_t digest = parameters_ == nullptr ? 0 : parameters_->Digests().state;
  machine_.OnApplied(position, digest, std::exchange(restored_digest_, std::nullopt));
}

void AppliedState::Adopt(const v1::RegisterBody& registration) {
  parameters_->SetGroups(registration);
  accumulator_.Adopt(registration);
  sums_.clear();
}

absl::Status AppliedState::ReserveMoves(const v1::StepPlan& plan) {
  DropMoves();
  const v1::GroupChangeBody& change = plan.group_change();
  v1::JobDefinition job = machine_.registration()->definition();
  if (!job::ChangesTier(job, change)) return absl::OkStatus();
  *job.mutable_groups() = change.groups();
  KAON_ASSIGN_OR_RETURN(moves_, ParameterMoves::Reserve(job, *parameters_, accumulator_));
  moves_are_of_ = change.SerializeAsString();
  return absl::OkStatus();
}

// A vote that was read back has no reservation. There may be no room, because a restart may have
// given parameters other places. They stay where they are then: no bit depends on a place.
absl::Status AppliedState::ApplyMoves(const v1::StepPlan& plan) {
  if (moves_ == nullptr || moves_are_of_ != plan.group_change().SerializeAsString()) {
    const absl::Status reserved = ReserveMoves(plan);
    if (!reserved.ok()) LOG(WARNING) << "a group stays where it is: " << reserved;
  }
  if (moves_ == nullptr) return absl::OkStatus();
  speculation_.End();
  gradients_.Withdraw();
  const std::unique_ptr<ParameterMoves> moves = std::move(moves_);
  return moves->Apply(publisher_,
                      [this](uint32_t id, int version) { freezes_.BeforeWrite(id, version); });
}

absl::Status AppliedState::ApplyGroupChange(const v1::StepRecord& record) {
  if (record.decision().outcome() == v1::OUTCOME_APPLY) {
    KAON_RETURN_IF_ERROR(ApplyMoves(record.plan()));
  }
  DropMoves();
  FinishApply(record.plan().position());
  parameters_->SetGroups(*machine_.registration());
  accumulator_.Adopt(*machine_.registration());
  // A step that an earlier holder planned at this position is planned again at the next one.
  ExpectNextStep();
  return absl::OkStatus();
}

absl::Status AppliedState::ApplyRestore(const v1::StepPlan& plan) {
  PassFailpoint(Failpoint::restore_load_begin);
  const v1::RestoreBody& restore = plan.restore();
  // A directory that is absent now is no damage: it may still have to be mounted.
  const absl::StatusOr<std::unique_ptr<disk::Directory>> files = host_.OpenCheckpoints();
  if (!files.ok()) return absl::UnavailableError(files.status().message());
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointRestore> state,
                        CheckpointRestore::Open(**files, restore));
  if (machine_.registration().has_value()) {
    publisher_.Rewind(plan.timeline());
  } else {
    publisher_.Serve(plan.job(), plan.timeline(), parameters_->sources());
  }
  KAON_RETURN_IF_ERROR(state->Load(*parameters_, publisher_, [this](uint32_t id, int version) {
    freezes_.BeforeWrite(id, version);
  }));
  ForgetStepsAfter(state->timeline(), restore.step());
  Adopt(restore.registration());
  restored_digest_ = state->restored_digest();
  PassFailpoint(Failpoint::restore_loaded);
  return absl::OkStatus();
}

absl::Status AppliedState::ApplyRollback(const v1::StepPlan& plan) {
  const v1::SnapshotPoint& target = plan.rollback().target();
  // Nobody needs a snapshot of the state that is replaced.
  freezes_.EndAll();
  gradients_.Withdraw();
  publisher_.Rewind(plan.timeline());
  uint64_t timeline = 0;
  KAON_RETURN_IF_ERROR(
      host_.WithSnapshots([this, &target, &timeline](SnapshotDirectory& directory) -> absl::Status {
        KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, directory.Load(target.position()));
        timeline = snapshot.part.timeline();
        SnapshotTensors tensors(directory, snapshot);
        return Load(snapshot.part, target.step(),
                    [&tensors](const v1::CheckpointTensor& tensor, uint64_t offset,
                               absl::Span<char> to) { return tensors.Read(tensor, offset, to); });
      }));
  ForgetStepsAfter(timeline, target.step());
  Adopt(job::RegistrationAfter(plan.rollback()));
  return absl::OkStatus();
}

void AppliedState::ForgetStepsAfter(uint64_t timeline, uint64_t step) {
  const uint64_t shared = lineage_.GoBack(machine_.timeline(), timeline, step);
  for (StoredParameter& parameter : parameters_->parameters()) parameter.trace.GoBackTo(shared);
}

absl::Status AppliedState::Load(const v1::CheckpointPart& part, uint64_t step,
                                const ReadTensor& read) {
  return LoadState(part, step, read, *parameters_, publisher_);
}

absl::Status AppliedState::LoadWeights() {
  std::vector<uint32_t> ids;
  for (const StoredParameter& parameter : parameters_->parameters()) ids.push_back(parameter.id);
  accumulator_.Prefetch(ids);
  for (StoredParameter& parameter : parameters_->parameters()) {
    PassFailpoint(Failpoint::load_weights_parameter);
    KAON_ASSIGN_OR_RETURN(tier::UnitUpdatePin pinned, publisher_.BeginWrite(parameter.id));
    freezes_.BeforeWrite(parameter.id, pinned.next_version());
    KAON_ASSIGN_OR_RETURN(const PinnedGradient loaded, accumulator_.Gradient(parameter.id));
    options_.backend->Copy(loaded.values, pinned.next_weights());
    NoteWeights(*options_.backend, pinned.next_weights(), parameter);
    publisher_.Publish(parameter.id, 0, std::move(pinned));
    accumulator_.Discard(parameter.id);
  }
  parameters_->Prefetch();
  return absl::OkStatus();
}

// Rooms 7 and 8: version t of each parameter is written while t - 1 stays, then published.
// Parameters on a disk are read ahead of their update, and written behind it.
absl::Status AppliedState::ApplyTrainStep(const v1::StepRecord& record) {
  TraceGradients(record.plan().step().step());
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  if (applied) parameters_->Prefetch();
  const std::vector<StoredParameter*> order = parameters_->TakeStepOrder(applied);
  const std::vector<kernels::SizedUpdate> updates = ParameterStore::SizedUpdates(order);
  std::vector<uint32_t> all_ids;
  for (const StoredParameter* parameter : order) all_ids.push_back(parameter->id);
  if (applied) accumulator_.Prefetch(all_ids);
  absl::Span<const uint32_t> ids = all_ids;
  absl::Span<StoredParameter* const> rest = order;
  while (!rest.empty()) {
    const auto next = absl::MakeConstSpan(updates).last(rest.size());
    const size_t count = std::min({options_.backend->NumConcurrentUpdates(next),
                                   parameters_->NumPinnable(rest), accumulator_.NumPinnable(ids)});
    KAON_RETURN_IF_ERROR(ApplyTo(rest.first(count), record));
    rest.remove_prefix(count);
    ids.remove_prefix(count);
  }
  if (applied) parameters_->Prefetch();
  return absl::OkStatus();
}

absl::Status AppliedState::ApplyTo(absl::Span<StoredParameter* const> parameters,
                                   const v1::StepRecord& record) {
  const v1::StepBody& step = record.plan().step();
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  std::vector<DecidedUpdate> updates;
  std::vector<PinnedGradient> gradients;
  for (StoredParameter* const parameter : parameters) {
    // 7a. Frozen parameters, and those no worker had a gradient for, are left alone ([T7], [T8]); a
    // skipped step leaves all alone.
    PinnedGradient gradient;
    if (applied && parameter->rule.has_value()) {
      KAON_ASSIGN_OR_RETURN(gradient, accumulator_.Gradient(parameter->id));
    }
    if (gradient.values.empty()) {
      publisher_.PublishUnchanged(parameter->id, step.step());
      continue;
    }
    // 7b. The clip factor is that of its norm group.
    const v1::ParameterPlacement& placement =
        machine_.registration()->placement().parameters(static_cast<int>(parameter->id));
    const double clip_factor =
        ClipFactorOf(record.decision(), parameter->group, placement.norm_group());
    const ParameterUpdate update(*parameter, step, placement, clip_factor, gradient.values);
    PassFailpoint(Failpoint::apply_parameter_begin);
    const std::optional<kernels::UpdateResult> ahead = speculation_.Take(update.scalars());
    KAON_ASSIGN_OR_RETURN(tier::UnitUpdatePin pinned, publisher_.BeginWrite(parameter->id));
    freezes_.BeforeWrite(parameter->id, pinned.next_version());
    updates.push_back({parameter, update, std::move(pinned), ahead, {}});
    gradients.push_back(std::move(gradient));
  }
  // 7c. The rule reads the newest weights and writes the next ones.
  RunUpdates(*options_.backend, absl::MakeSpan(updates));
  gradients.clear();
  for (DecidedUpdate& update : updates) {
    accumulator_.Discard(update.parameter->id);
    Publish(std::move(update), step.step());
  }
  return absl::OkStatus();
}

void AppliedState::Publish(DecidedUpdate update, uint64_t step) {
  StoredParameter& parameter = *update.parameter;
  PassFailpoint(Failpoint::apply_parameter_written);
  parameter.updates_applied += 1;
  parameter.newton_schulz_updates += static_cast<uint64_t>(update.result.newton_schulz_calls);
  parameter.weights_digest = update.result.weights_digest;
  parameter.slots_digest = update.result.slots_digest;
  parameter.largest_weight_bits = update.result.largest_weight_bits;
  if (update.result.fault != kernels::UpdateFault::kNone) NoteFault(update, step, counts_);
  parameter.trace.update = {update.update.scalars().lr, *parameter.rule};
  if (parameter.trace.first_update_step == 0) parameter.trace.first_update_step = step;
  // 8. Readers may have it.
  publisher_.Publish(parameter.id, step, std::move(update.pinned));
  PassFailpoint(Failpoint::apply_parameter_published);
}

void AppliedState::TraceGradients(uint64_t step) {
  // Both are in the order of parameter ids; frozen parameters have no sums.
  auto sums = sums_.begin();
  for (StoredParameter& parameter : parameters_->parameters()) {
    ParameterTrace& trace = parameter.trace;
    while (sums != sums_.end() && sums->parameter_id() < parameter.id) ++sums;
    if (sums == sums_.end() || sums->parameter_id() != parameter.id) continue;
    trace.sums = *sums;
    if (sums->num_non_finite() > 0) ++trace.non_finite_steps;
    trace.non_finite_elements += sums->num_non_finite();
    if (sums->missing()) continue;
    if (trace.first_gradient_step == 0) trace.first_gradient_step = step;
    // Nobody pushed the zeros that replace a missing gradient ([T7]): they have no dtype.
    if (trace.gradient_dtype != v1::DTYPE_UNSPECIFIED) continue;
    trace.gradient_dtype = accumulator_.gradient_dtype(parameter.id);
  }
}

void AppliedState::FinishReplay() {
  applied_steps_ = 0;
  skipped_steps_ = 0;
  if (parameters_ == nullptr) return;
  for (StoredParameter& parameter : parameters_->parameters()) {
    parameter.trace.non_finite_steps = 0;
    parameter.trace.non_finite_elements = 0;
    // No journal says as which dtype a gradient was pushed.
    parameter.trace.first_gradient_step = 0;
  }
}

void AppliedState::SetSums(const v1::Prepared& facts) {
  sums_.assign(facts.sums().begin(), facts.sums().end());
}

void AppliedState::ExpectNextStep() {
  // The journal may still read gradients of a step that this entry displaced.
  gradients_.Withdraw();
  if (!machine_.registration().has_value()) return;
  ExpectedStep expected;
  expected.job = machine_.registration()->definition().name();
  expected.timeline = machine_.timeline();
  expected.step = machine_.weights_loaded() ? machine_.applied_step() + 1 : 0;
  accumulator_.ExpectStep(std::move(expected));
  publisher_.ExpectStep(std::nullopt);
}

void AppliedState::BeginStep(const v1::StepPlan& plan, uint64_t generation) {
  DropMoves();
  speculation_.Begin(plan, generation);
}

void AppliedState::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  // The gradient may be older than a reservation that failed.
  if (parameters_ == nullptr) return;
  speculation_.OnGradient(generation, *parameters_, parameter_id);
}

void AppliedState::OnFolded(uint64_t generation, v1::Prepared& facts) {
  for (v1::ParameterSums& row : *facts.mutable_sums()) {
    const StoredParameter& parameter = parameters_->Get(row.parameter_id());
    row.set_weight_absolute_max(kernels::FloatOf(parameter.largest_weight_bits));
  }
  SetSums(facts);
  for (const StoredParameter& parameter : parameters_->parameters()) {
    speculation_.OnGradient(generation, *parameters_, parameter.id);
  }
}

void AppliedState::Speculate() {
  speculation_.ComputeOne(*parameters_, machine_.registration()->placement());
}

absl::StatusOr<std::unique_ptr<StateFreeze>> AppliedState::Freeze() {
  const bool is_deleted = !machine_.deleted_job().empty();
  if ((parameters_ == nullptr && !is_deleted) || !machine_.data_loss().empty()) {
    return absl::FailedPreconditionError("this shard holds no state to freeze");
  }
  AgreementSnapshot facts;
  facts.state = machine_.state();
  facts.state.clear_prepared();
  facts.state.clear_snapshots();
  facts.state.clear_rollback_needed();
  facts.promised = machine_.promised();
  facts.shard = machine_.shard();
  facts.num_shards = machine_.num_shards();
  facts.newest_generation = machine_.newest_generation();
  if (is_deleted) return FreezeList::OfNoJob(std::move(facts), *options_.backend);
  return freezes_.Add(std::move(facts), *parameters_);
}

}  // namespace kaon::shard
