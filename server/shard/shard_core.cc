#include "server/shard/shard_core.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/settings.h"
#include "kernels/float_bits.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/shard/parameters/parameter_stats.h"

namespace kaon::shard {

namespace {

// Long enough for somebody who asks every few seconds.
constexpr uint64_t kWatchedSteps = 64;

// Of its norm group, unless its group is exempt ([C3], [C7]).
double ClipFactorOf(const v1::StepDecision& decision, int group, const std::string& norm_group) {
  if (decision.norms(group).exempt()) return 1;
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    if (norm.norm_group() == norm_group) return norm.clip_factor();
  }
  return 1;
}

// Says that the update of `step` was not applied to its parameter ([T10]).
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

ShardCore::ShardCore(Options options, ShardHost& host, StepPhases* phases,
                     monitor::EventCounts* counts)
    : options_(std::move(options)),
      host_(host),
      phases_(phases),
      counts_(counts),
      machine_(options_.data_loss, options_.durability, options_.interval_steps),
      publisher_(phases, options_.store),
      accumulator_({options_.store, options_.backend, options_.staging_bytes,
                    [&host](uint64_t generation) { host.OnFolded(generation); },
                    [&host](uint64_t generation, uint32_t parameter_id) {
                      host.OnParameterFolded(generation, parameter_id);
                    },
                    options_.min_chunk_bytes, phases}),
      gradient_replay_(accumulator_),
      speculation_(*options_.backend, accumulator_, publisher_),
      scrub_(options_.scrub_steps) {
  if (!options_.data_loss.empty()) EndDataStreams(absl::DataLossError(options_.data_loss));
}

void ShardCore::OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now) {
  const bool was_lost = !machine_.data_loss().empty();
  machine_.OnControl(stream, message, now);
  // What it took from a checkpoint is not what the checkpoint has: nobody is served of that.
  if (!was_lost && !machine_.data_loss().empty()) {
    EndDataStreams(absl::DataLossError(machine_.data_loss()));
    host_.OnDataLoss(machine_.data_loss());
  }
  Carry();
}

void ShardCore::OnReady(StreamId stream, absl::Time now) { machine_.OnReady(stream, now); }

void ShardCore::OnStreamClosed(StreamId stream) {
  machine_.OnStreamClosed(stream);
  Carry();
}

void ShardCore::OnDurable(uint64_t token) {
  machine_.OnDurable(token);
  Carry();
}

// Room 5: the sum becomes a mean, its norm is taken, it goes to the journal while others are still
// pushed, and once all are there the shard votes.
void ShardCore::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  if (accumulator_.FinishParameter(generation, parameter_id, AppendSlice())) {
    ahead_of_prepare_ = true;
  }
  // Of a generation from before a reservation that failed.
  if (parameters_ == nullptr) return;
  speculation_.OnGradient(generation, *parameters_, parameter_id);
}

void ShardCore::OnFolded(uint64_t generation) {
  std::optional<v1::Prepared> facts = accumulator_.FinishSums(generation);
  if (!facts.has_value()) return;
  PassFailpoint(Failpoint::shard_folded);
  for (v1::ParameterSums& row : *facts->mutable_sums()) {
    const StoredParameter& parameter = parameters_->Get(row.parameter_id());
    row.set_weight_absolute_max(kernels::FloatOf(parameter.largest_weight_bits));
  }
  sums_.assign(facts->sums().begin(), facts->sums().end());
  for (const StoredParameter& parameter : parameters_->parameters()) {
    speculation_.OnGradient(generation, *parameters_, parameter.id);
  }
  machine_.OnFolded(generation, *std::move(facts));
  Carry();
}

GradientAccumulator::AppendSlice ShardCore::AppendSlice() {
  return [this](const journal::GradientSlice& slice) { host_.AppendGradient(slice); };
}

std::vector<ShardOutput> ShardCore::TakeOutputs() { return std::exchange(outputs_, {}); }

void ShardCore::Carry() {
  for (auto actions = machine_.TakeActions(); !actions.empty(); actions = machine_.TakeActions()) {
    for (ShardAction& action : actions) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) {
        outputs_.push_back(std::move(*send));
      } else if (auto* end = std::get_if<EndStream>(&action)) {
        outputs_.push_back(std::move(*end));
      } else if (auto* append = std::get_if<AppendJournal>(&action)) {
        AppendGradientOf(append->record);
        outputs_.push_back(std::move(*append));
      } else if (const auto* begin = std::get_if<BeginFolding>(&action)) {
        publisher_.ExpectStep(begin->plan.step().step());
        if (phases_ != nullptr) {
          phases_->Begin(begin->plan.position(), begin->plan.step().step());
        }
        WithdrawGradients();
        speculation_.Begin(begin->plan, begin->generation);
        accumulator_.BeginFolding(begin->plan, begin->generation);
      } else if (const auto* restamp = std::get_if<RestampPlan>(&action)) {
        accumulator_.Restamp(restamp->plan);
      } else if (const auto* reserve = std::get_if<ReserveJob>(&action)) {
        Reserve(*reserve);
      } else if (const auto* write = std::get_if<WriteCheckpoint>(&action)) {
        TakeCheckpoint(*write);
      } else if (const auto* apply = std::get_if<ApplyRecord>(&action)) {
        StepPhases* const phases = apply->record.plan().has_step() ? phases_ : nullptr;
        if (phases != nullptr) phases->Decided();
        const PhaseTimer timer(phases, Phase::kApply);
        // Room 6 was the coordinator's: the decision is in the record.
        const absl::Status status = Apply(apply->record);
        // Recovery path = crash path: the restarted shard says what is wrong, or finds it in order.
        if (!status.ok()) {
          LOG(FATAL) << "position " << apply->record.plan().position() << ": " << status;
        }
        FreezeForCheckpoint();
        host_.OnApplied();
      }
    }
  }
}

void ShardCore::AppendGradientOf(const journal::Record& record) {
  const auto* prepare = std::get_if<journal::PrepareRecord>(&record);
  if (prepare == nullptr || prepare->generation == appended_generation_) return;
  appended_generation_ = prepare->generation;
  accumulator_.AppendGradient(prepare->generation, AppendSlice());
  ahead_of_prepare_ = false;
}

void ShardCore::WithdrawGradients() {
  if (std::exchange(ahead_of_prepare_, false)) host_.WithdrawGradients();
}

void ShardCore::Reserve(const ReserveJob& reserve) {
  PassFailpoint(Failpoint::shard_reserve_begin);
  speculation_.End();
  if (reserve.plan.has_restore()) return ReserveRestore(reserve);
  if (reserve.plan.has_rollback()) return ReserveRollback(reserve);
  if (reserve.plan.has_group_change()) {
    const uint32_t workers =
        job::WorldSizeAfter(machine_.registration()->definition(), reserve.plan.group_change());
    return machine_.OnReserved(reserve.generation, accumulator_.CheckWorkers(workers));
  }
  const absl::Status status =
      TryReserve(reserve.plan.registration(), machine_.shard(), machine_.num_shards());
  if (!status.ok()) parameters_.reset();
  machine_.OnReserved(reserve.generation, status);
}

absl::Status ShardCore::TryReserve(const v1::RegisterBody& registration, uint32_t shard,
                                   uint32_t num_shards) {
  // What an earlier, withdrawn registration reserved goes first.
  freezes_.EndAll();
  publisher_.DropCopies();
  WithdrawGradients();
  parameters_.reset();
  KAON_ASSIGN_OR_RETURN(parameters_,
                        ParameterStore::Create(*options_.store, registration, shard, num_shards));
  KAON_RETURN_IF_ERROR(
      parameters_->ReserveWorkspace(options_.backend->name(), options_.compute_threads));
  return accumulator_.Reserve(registration, shard);
}

absl::Status ShardCore::Apply(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  PassFailpoint(Failpoint::apply_begin);
  if (plan.has_registration()) {
    if (applied) publisher_.Serve(plan.job(), plan.timeline(), parameters_->sources());
  } else if (plan.has_restore()) {
    KAON_RETURN_IF_ERROR(ApplyRestore(plan));
  } else if (plan.has_rollback()) {
    KAON_RETURN_IF_ERROR(ApplyRollback(plan));
  } else if (plan.has_group_change()) {
    ApplyGroupChange(record);
    return absl::OkStatus();
  } else if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    if (applied) LoadWeights();
  } else {
    KAON_RETURN_IF_ERROR(scrub_.Check(*parameters_, publisher_));
    ApplyTrainStep(record);
    ++(applied ? applied_steps_ : skipped_steps_);
  }
  FinishApply(plan.position());
  ExpectNextStep();
  return absl::OkStatus();
}

void ShardCore::FinishApply(uint64_t position) {
  speculation_.End();
  PassFailpoint(Failpoint::apply_end);
  machine_.OnApplied(position, parameters_->Digests().state,
                     std::exchange(restored_digest_, std::nullopt));
}

void ShardCore::ApplyGroupChange(const v1::StepRecord& record) {
  FinishApply(record.plan().position());
  parameters_->SetGroups(*machine_.registration());
  accumulator_.Adopt(*machine_.registration());
  // A step that was planned at this position by an earlier holder is planned again at the next one.
  ExpectNextStep();
}

void ShardCore::LoadWeights() {
  for (StoredParameter& parameter : parameters_->parameters()) {
    PassFailpoint(Failpoint::load_weights_parameter);
    const absl::Span<const float> weights = accumulator_.gradient(parameter.id);
    const absl::Span<float> to = publisher_.BeginWrite(parameter.id);
    CHECK_EQ(weights.size(), to.size()) << parameter.name;
    freezes_.BeforeWrite(parameter.id, to);
    std::copy(weights.begin(), weights.end(), to.begin());
    NoteWeights(to, parameter);
    publisher_.Publish(parameter.id, 0);
  }
}

// Rooms 7 and 8: version t of each parameter is written beside t - 1, then published.
void ShardCore::ApplyTrainStep(const v1::StepRecord& record) {
  TraceGradients(record.plan().step().step());
  absl::Span<StoredParameter> parameters = absl::MakeSpan(parameters_->parameters());
  while (!parameters.empty()) {
    const size_t count = NumSideBySide(parameters, options_.compute_threads);
    ApplyTo(parameters.first(count), record);
    parameters.remove_prefix(count);
  }
}

void ShardCore::ApplyTo(absl::Span<StoredParameter> parameters, const v1::StepRecord& record) {
  const v1::StepBody& step = record.plan().step();
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  std::vector<DecidedUpdate> updates;
  for (StoredParameter& parameter : parameters) {
    // 7a. Frozen parameters, and those no worker had a gradient for, are left alone ([T7], [T8]); a
    // skipped step leaves all alone.
    const absl::Span<const float> gradient = applied && parameter.rule.has_value()
                                                 ? accumulator_.gradient(parameter.id)
                                                 : absl::Span<const float>();
    if (gradient.empty()) {
      publisher_.Carry(parameter.id, step.step());
      continue;
    }
    // 7b. The clip factor is that of its norm group.
    const v1::ParameterPlacement& placement =
        machine_.registration()->placement().parameters(static_cast<int>(parameter.id));
    const double clip_factor =
        ClipFactorOf(record.decision(), parameter.group, placement.norm_group());
    const ParameterUpdate update(parameter, step, placement, clip_factor, gradient);
    PassFailpoint(Failpoint::apply_parameter_begin);
    const std::optional<kernels::UpdateResult> ahead = speculation_.Take(update.scalars());
    const absl::Span<float> to = publisher_.BeginWrite(parameter.id);
    freezes_.BeforeWrite(parameter.id, to);
    updates.push_back({&parameter, update, to, ahead, {}});
  }
  // 7c. The rule, from the newest weights into the other buffer.
  RunUpdates(*options_.backend, publisher_, absl::MakeSpan(updates));
  for (const DecidedUpdate& update : updates) {
    StoredParameter& parameter = *update.parameter;
    PassFailpoint(Failpoint::apply_parameter_written);
    parameter.updates_applied += 1;
    parameter.newton_schulz_updates += static_cast<uint64_t>(update.result.newton_schulz_calls);
    parameter.weights_digest = update.result.weights_digest;
    parameter.slots_digest = update.result.slots_digest;
    parameter.largest_weight_bits = update.result.largest_weight_bits;
    if (update.result.fault != kernels::UpdateFault::kNone) {
      NoteFault(update, step.step(), counts_);
    }
    parameter.trace.update = {update.update.scalars().lr, *parameter.rule};
    if (parameter.trace.first_update_step == 0) parameter.trace.first_update_step = step.step();
    // 8. Readers may have it.
    publisher_.Publish(parameter.id, step.step());
    PassFailpoint(Failpoint::apply_parameter_published);
  }
}

void ShardCore::TraceGradients(uint64_t step) {
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
    // Zeros that stand in for a missing gradient ([T7]) were pushed by nobody.
    if (trace.gradient_dtype != v1::DTYPE_UNSPECIFIED) continue;
    trace.gradient_dtype = accumulator_.gradient_dtype(parameter.id);
  }
}

void ShardCore::ExpectNextStep() {
  if (!machine_.registration().has_value()) return;
  ExpectedStep expected;
  expected.job = machine_.registration()->definition().name();
  expected.timeline = machine_.timeline();
  expected.step = machine_.weights_loaded() ? machine_.applied_step() + 1 : 0;
  accumulator_.ExpectStep(std::move(expected));
  publisher_.ExpectStep(std::nullopt);
}

absl::StatusOr<std::unique_ptr<StateFreeze>> ShardCore::Freeze() {
  if (parameters_ == nullptr || !machine_.data_loss().empty()) {
    return absl::FailedPreconditionError("this shard holds no state to freeze");
  }
  FrozenFacts facts;
  facts.state = machine_.state();
  facts.state.clear_prepared();
  facts.state.clear_snapshots();
  facts.state.clear_rollback_needed();
  facts.promised = machine_.promised();
  facts.shard = machine_.shard();
  facts.num_shards = machine_.num_shards();
  facts.newest_generation = machine_.newest_generation();
  return freezes_.Add(std::move(facts), *parameters_, publisher_);
}

void ShardCore::EndDataStreams(const absl::Status& status) {
  checkpoint_.reset();
  accumulator_.CloseAll(status);
  publisher_.CloseAll(status);
}

absl::Status ShardCore::CheckJob(absl::string_view job) const {
  const std::optional<v1::RegisterBody>& registration = machine_.registration();
  if (job.empty() || (registration.has_value() && registration->definition().name() == job)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(
      "job '", proto::Excerpt(job), "' asked for, this shard holds ",
      registration.has_value() ? absl::StrCat("'", registration->definition().name(), "'")
                               : std::string("none")));
}

absl::StatusOr<StoredParameter*> ShardCore::Find(const v1::ShardParameterRequest& request) const {
  KAON_RETURN_IF_ERROR(CheckJob(request.job()));
  if (!machine_.registration().has_value()) {
    return absl::NotFoundError("parameter asked for, this shard holds no job");
  }
  for (StoredParameter& parameter : parameters_->parameters()) {
    if (parameter.id == request.parameter_id()) return &parameter;
  }
  return absl::NotFoundError(absl::StrCat("parameter_id ", request.parameter_id(),
                                          " asked for, this shard holds no such parameter"));
}

absl::StatusOr<v1::ParameterStats> ShardCore::Stats(const v1::ShardParameterRequest& request) {
  KAON_ASSIGN_OR_RETURN(StoredParameter * parameter, Find(request));
  parameter->trace.watched_until_step = machine_.applied_step() + kWatchedSteps;
  return StatsOf(*parameter, publisher_.current(parameter->id), publisher_.previous(parameter->id));
}

absl::StatusOr<v1::ParameterDiagnostics> ShardCore::Diagnostics(
    const v1::ShardParameterRequest& request) const {
  KAON_ASSIGN_OR_RETURN(const StoredParameter* parameter, Find(request));
  return DiagnosticsOf(*parameter, options_.backend->name());
}

absl::StatusOr<v1::DescribeShardResponse> ShardCore::Describe(absl::string_view job) {
  KAON_RETURN_IF_ERROR(CheckJob(job));
  const std::optional<v1::RegisterBody>& registration = machine_.registration();
  v1::DescribeShardResponse response;
  response.set_shard(machine_.shard());
  *response.mutable_state() = machine_.state();
  response.set_capacity_bytes(options_.store->capacity_bytes());
  response.set_used_bytes(options_.store->used_bytes());
  response.set_staging_bytes(options_.staging_bytes);
  response.set_backend(options_.backend->name());
  response.set_build(options_.written_by.build());
  response.set_device_class(options_.written_by.device_class());
  response.set_instruction_set(options_.instruction_set);
  response.set_compute_threads(options_.compute_threads);
  response.mutable_form_times()->Assign(machine_.form_times().begin(), machine_.form_times().end());
  response.set_applied_steps(applied_steps_);
  response.set_skipped_steps(skipped_steps_);
  for (const uint32_t rank : accumulator_.AwaitedRanks()) response.add_awaited_ranks(rank);
  if (!registration.has_value()) return response;
  for (v1::ParameterState& state : parameters_->Describe()) {
    *response.add_parameters() = std::move(state);
  }
  const StateDigests digests = parameters_->Digests();
  response.set_weights_digest(digests.weights);
  response.set_state_digest(digests.state +
                            parameters_->PositionDigest(machine_.applied_position()));
  return response;
}

}  // namespace kaon::shard
