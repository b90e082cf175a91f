#include "server/shard/shard_core.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "job/settings.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/shard/parameters/parameter_sample.h"
#include "server/shard/parameters/parameter_stats.h"
#include "server/shard/parameters/tensor_slice.h"

namespace kaon::shard {

namespace {

// Train steps without speculation after somebody asked for statistics: enough for somebody who asks
// every few seconds.
constexpr uint64_t kWatchedSteps = 64;

void AddProductForms(const kernels::Backend& backend, v1::DescribeShardResponse& response) {
  for (kernels::ProductForm& form : backend.ProductForms()) {
    v1::ProductForm& added = *response.add_product_forms();
    added.set_dtype(std::move(form.dtype));
    added.set_n(form.n);
    added.set_k(form.k);
    added.set_batch(form.batch);
    added.set_form(std::move(form.form));
  }
}

uint64_t NumIn(absl::string_view tier, const ParameterStore* parameters) {
  if (parameters == nullptr) return 0;
  return std::count_if(
      parameters->parameters().begin(), parameters->parameters().end(),
      [tier](const StoredParameter& one) { return one.place.home->name() == tier; });
}

void AddDisk(const tier::NvmeTier& nvme, v1::TierStatus& status) {
  const tier::NvmeTier::Counters counters = nvme.counters();
  status.set_name(std::string(nvme.name()));
  status.set_capacity_bytes(nvme.capacity_bytes());
  status.set_used_bytes(nvme.used_bytes());
  status.set_path(nvme.paths());
  status.set_staging_bytes(nvme.staging_bytes());
  status.set_read_bytes(counters.read_bytes);
  status.set_written_bytes(counters.written_bytes);
  status.set_read_seconds(absl::ToDoubleSeconds(counters.read_time));
  status.set_write_seconds(absl::ToDoubleSeconds(counters.write_time));
  status.set_hits(counters.hits);
  status.set_misses(counters.misses);
  status.set_waited_seconds(absl::ToDoubleSeconds(counters.waited));
  status.set_seconds(absl::ToDoubleSeconds(counters.age));
}

}  // namespace

ShardCore::ShardCore(Options options, ShardHost& host, StepPhases* phases,
                     monitor::EventCounts* counts)
    : options_(std::move(options)),
      host_(host),
      phases_(phases),
      machine_(options_.data_loss, options_.durability, options_.interval_steps),
      publisher_(*options_.backend, phases, options_.store, options_.pull_cache),
      accumulator_({options_.store, options_.backend, options_.staging_bytes,
                    [&host](uint64_t generation) { host.OnFolded(generation); },
                    [&host](uint64_t generation, uint32_t parameter_id) {
                      host.OnParameterFolded(generation, parameter_id);
                    },
                    options_.min_chunk_bytes, phases, options_.staging,
                    options_.nvme == nullptr ? nullptr : &options_.nvme->sums()}),
      gradients_(accumulator_, host),
      state_(options_, {host, machine_, accumulator_, publisher_, gradients_, counts}),
      replay_(machine_, state_, accumulator_, publisher_, gradients_),
      checkpoint_(host, machine_, state_, options_.written_by) {
  if (!options_.data_loss.empty()) EndDataStreams(absl::DataLossError(options_.data_loss));
}

absl::Status ShardCore::Restore(const AgreementSnapshot& facts, const v1::CheckpointPart& part,
                                const ReadTensor& read) {
  return replay_.Restore(facts, part, read);
}

void ShardCore::FinishReplay() { replay_.Finish(); }

void ShardCore::OnControl(StreamId stream, const v1::CoordinatorToShard& message, absl::Time now) {
  const bool was_lost = !machine_.data_loss().empty();
  machine_.OnControl(stream, message, now);
  // The state is not the one that the checkpoint has: the shard serves it no more.
  if (!was_lost && !machine_.data_loss().empty()) {
    EndDataStreams(absl::DataLossError(machine_.data_loss()));
    host_.OnDataLoss(machine_.data_loss());
  }
  RunActions();
}

void ShardCore::OnReady(StreamId stream, absl::Time now) { machine_.OnReady(stream, now); }

void ShardCore::OnStreamClosed(StreamId stream) {
  machine_.OnStreamClosed(stream);
  RunActions();
}

void ShardCore::OnDurable(uint64_t token) {
  machine_.OnDurable(token);
  RunActions();
}

// Room 5: the shard turns the sum into a mean, takes its norm and appends it to the journal while
// workers still push others. It votes once all are there.
void ShardCore::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  gradients_.OnParameterFolded(generation, parameter_id);
  state_.OnParameterFolded(generation, parameter_id);
}

void ShardCore::OnFolded(uint64_t generation) {
  std::optional<v1::Prepared> facts = accumulator_.FinishSums(generation);
  if (!facts.has_value()) return;
  PassFailpoint(Failpoint::shard_folded);
  state_.OnFolded(generation, *facts);
  machine_.OnFolded(generation, *std::move(facts));
  RunActions();
}

void ShardCore::OnRestoreChecked(uint64_t generation, const absl::Status& status) {
  machine_.OnReserved(generation, status);
  RunActions();
}

void ShardCore::OnPartWritten(const std::string& id, uint64_t attempt,
                              const absl::StatusOr<v1::CheckpointPart>& part) {
  Send(checkpoint_.OnPartWritten(id, attempt, part));
}

std::vector<ShardOutput> ShardCore::TakeOutputs() { return std::exchange(outputs_, {}); }

void ShardCore::RunActions() {
  for (auto actions = machine_.TakeActions(); !actions.empty(); actions = machine_.TakeActions()) {
    for (ShardAction& action : actions) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) {
        outputs_.push_back(std::move(*send));
      } else if (auto* end = std::get_if<EndStream>(&action)) {
        outputs_.push_back(std::move(*end));
      } else if (auto* append = std::get_if<AppendJournal>(&action)) {
        gradients_.BeforeAppend(append->record);
        outputs_.push_back(std::move(*append));
      } else if (const auto* begin = std::get_if<BeginFolding>(&action)) {
        BeginStep(*begin);
      } else if (const auto* restamp = std::get_if<RestampPlan>(&action)) {
        accumulator_.Restamp(restamp->plan);
      } else if (const auto* reserve = std::get_if<ReserveJob>(&action)) {
        Reserve(*reserve);
      } else if (const auto* write = std::get_if<WriteCheckpoint>(&action)) {
        Send(checkpoint_.OnOrder(*write));
      } else if (const auto* apply = std::get_if<ApplyRecord>(&action)) {
        Apply(apply->record);
      }
    }
  }
}

void ShardCore::Send(CheckpointTaker::Report report) {
  if (report.has_value()) outputs_.push_back(*std::move(report));
}

void ShardCore::BeginStep(const BeginFolding& begin) {
  const uint64_t step = begin.plan.step().step();
  publisher_.ExpectStep(step);
  if (phases_ != nullptr) phases_->Begin(begin.plan.position(), step);
  gradients_.Withdraw();
  state_.BeginStep(begin.plan, begin.generation);
  accumulator_.BeginFolding(begin.plan, begin.generation);
}

// Rooms 7 and 8. Room 6 was the coordinator's: the decision is in the record.
void ShardCore::Apply(const v1::StepRecord& record) {
  StepPhases* const phases = record.plan().has_step() ? phases_ : nullptr;
  if (phases != nullptr) phases->Decided();
  const PhaseTimer timer(phases, Phase::kApply);
  // The coordinator has given up the checkpoint of a deleted job.
  if (record.plan().has_job_deletion()) checkpoint_.GiveUp();
  const absl::Status status = state_.Apply(record);
  // The process ends as in a crash. The restarted shard says what is wrong, or finds it in order.
  if (!status.ok()) LOG(FATAL) << "position " << record.plan().position() << ": " << status;
  checkpoint_.OnApplied();
  host_.OnApplied();
}

void ShardCore::Reserve(const ReserveJob& reserve) {
  PassFailpoint(Failpoint::shard_reserve_begin);
  state_.EndSpeculation();
  state_.DropMoves();
  const v1::StepPlan& plan = reserve.plan;
  if (plan.has_restore()) return ReserveRestore(reserve);
  if (plan.has_rollback()) return ReserveRollback(reserve);
  if (plan.has_group_change()) {
    const uint32_t workers =
        job::WorldSizeAfter(machine_.registration()->definition(), plan.group_change());
    absl::Status status = accumulator_.CheckWorkers(workers);
    status.Update(state_.ReserveMoves(plan));
    return machine_.OnReserved(reserve.generation, status);
  }
  machine_.OnReserved(reserve.generation,
                      state_.Reserve(plan.registration(), machine_.shard(), machine_.num_shards()));
}

void ShardCore::ReserveRestore(const ReserveJob& reserve) {
  // The check would wait for the part that is being written, which the coordinator has given up.
  checkpoint_.GiveUp();
  const v1::StepPlan& plan = reserve.plan;
  // A running job has its memory, and CheckPlanBody made sure that the restored one fits it.
  if (!machine_.registration().has_value()) {
    const absl::Status status =
        state_.Reserve(plan.restore().registration(), machine_.shard(), machine_.num_shards());
    if (!status.ok()) return machine_.OnReserved(reserve.generation, status);
  }
  const RestoreCheck check = {
      plan.restore(),
      {plan.restore().checkpoint(), plan.timeline(), {machine_.timeline(), plan.position()}},
      machine_.shard()};
  host_.CheckRestore(check, reserve.generation);
}

void ShardCore::ReserveRollback(const ReserveJob& reserve) {
  // The check would wait for the part that is being written, which the coordinator has given up.
  checkpoint_.GiveUp();
  // Nobody needs a snapshot of what follows the target. Once whole, it would push the target out.
  state_.EndFreezes();
  host_.CheckRollback(reserve.plan.rollback().target(), reserve.generation);
}

void ShardCore::EndDataStreams(const absl::Status& status) {
  checkpoint_.GiveUp();
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

absl::StatusOr<StoredParameter*> ShardCore::Find(const std::string& job, uint32_t id) {
  KAON_RETURN_IF_ERROR(CheckJob(job));
  if (!machine_.registration().has_value()) {
    return absl::NotFoundError("parameter asked for, this shard holds no job");
  }
  for (StoredParameter& parameter : state_.parameters()->parameters()) {
    if (parameter.id == id) return &parameter;
  }
  return absl::NotFoundError(
      absl::StrCat("parameter_id ", id, " asked for, this shard holds no such parameter"));
}

absl::Status ShardCore::WithTensors(
    const StoredParameter& parameter,
    absl::FunctionRef<void(kernels::ConstRegion, absl::Span<const kernels::Region>,
                           kernels::ConstRegion)>
        use) {
  KAON_ASSIGN_OR_RETURN(const tier::UnitReadPin newest, publisher_.PinNewest(parameter.id));
  if (!publisher_.HasPrevious(parameter.id)) {
    use(newest.tensor(0), newest.states(), {});
    return absl::OkStatus();
  }
  const tier::TensorPlace previous = {parameter.place.home, parameter.place.unit,
                                      parameter.place.home->next(parameter.place.unit), 0};
  if (!previous.memory().empty()) {
    use(newest.tensor(0), newest.states(), previous.memory());
    return absl::OkStatus();
  }
  std::vector<float> read(parameter.num_elements);
  KAON_RETURN_IF_ERROR(previous.CopyTo(*options_.backend, read));
  use(newest.tensor(0), newest.states(), read);
  return absl::OkStatus();
}

absl::StatusOr<v1::ParameterStats> ShardCore::Stats(const v1::ShardParameterRequest& request) {
  KAON_ASSIGN_OR_RETURN(StoredParameter * parameter, Find(request.job(), request.parameter_id()));
  parameter->trace.watched_until_step = machine_.applied_step() + kWatchedSteps;
  v1::ParameterStats stats;
  KAON_RETURN_IF_ERROR(WithTensors(
      *parameter, [&](kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                      kernels::ConstRegion previous) {
        stats = StatsOf(*parameter, *options_.backend, newest, states, previous);
      }));
  return stats;
}

bool ShardCore::Sample() {
  ParameterStore* const store = state_.parameters();
  const uint64_t step = machine_.applied_step();
  if (store == nullptr || step == 0) return false;
  StoredParameter* const parameter = NextToSample(store->parameters(), publisher_, step);
  if (parameter == nullptr) return false;
  const absl::Status read = WithTensors(
      *parameter, [&](kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                      kernels::ConstRegion previous) {
        parameter->trace.samples.Add(
            SampleOf(*parameter, *options_.backend, newest, states, previous, step),
            SampleSeries::CapacityOf(store->parameters().size()));
      });
  if (!read.ok()) {
    LOG_EVERY_T(WARNING, 60) << "no sample of " << parameter->name << ": " << read;
  }
  return read.ok();
}

absl::StatusOr<v1::ParameterHistory> ShardCore::History(const v1::ShardParameterRequest& request) {
  KAON_ASSIGN_OR_RETURN(const StoredParameter* parameter,
                        Find(request.job(), request.parameter_id()));
  return HistoryOf(parameter->id, parameter->trace.samples);
}

std::optional<double> ShardCore::OrthogonalityError() const {
  if (state_.parameters() == nullptr) return std::nullopt;
  return LargestOrthogonalityError(state_.parameters()->parameters());
}

absl::StatusOr<v1::ParameterDiagnostics> ShardCore::Diagnostics(
    const v1::ShardParameterRequest& request) {
  KAON_ASSIGN_OR_RETURN(const StoredParameter* parameter,
                        Find(request.job(), request.parameter_id()));
  return DiagnosticsOf(*parameter, *options_.backend);
}

absl::StatusOr<v1::TensorSlice> ShardCore::Slice(const v1::ShardSliceRequest& request) {
  KAON_ASSIGN_OR_RETURN(const StoredParameter* parameter,
                        Find(request.job(), request.parameter_id()));
  if (!machine_.weights_loaded()) {
    return absl::FailedPreconditionError("values asked for, the job has no weights yet");
  }
  KAON_ASSIGN_OR_RETURN(const tier::UnitReadPin newest, publisher_.PinNewest(parameter->id));
  KAON_ASSIGN_OR_RETURN(v1::TensorSlice slice, SliceOf(*parameter, *options_.backend,
                                                       newest.tensor(0), newest.states(), request));
  slice.set_step(machine_.applied_step());
  return slice;
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
  response.set_memory_tier(options_.backend->memory_tier());
  AddProductForms(*options_.backend, response);
  response.set_applied_steps(state_.applied_steps());
  response.set_skipped_steps(state_.skipped_steps());
  for (const uint32_t rank : accumulator_.AwaitedRanks()) response.add_awaited_ranks(rank);
  if (const v1::StepPlan* plan = machine_.accepted_plan(); plan != nullptr && plan->has_step()) {
    *response.mutable_awaited_ballot() = plan->ballot();
    response.set_awaited_round(plan->round());
  }
  if (!registration.has_value()) return response;
  for (v1::ParameterState& state : state_.parameters()->Describe()) {
    *response.add_parameters() = std::move(state);
  }
  const StateDigests digests = state_.parameters()->Digests();
  response.set_weights_digest(digests.weights);
  response.set_state_digest(digests.state +
                            state_.parameters()->PositionDigest(machine_.applied_position()));
  return response;
}

std::vector<v1::TierStatus> ShardCore::Tiers() const {
  std::vector<v1::TierStatus> tiers(1);
  tiers[0].set_name(options_.backend->memory_tier());
  tiers[0].set_capacity_bytes(options_.store->capacity_bytes());
  tiers[0].set_used_bytes(options_.store->used_bytes());
  if (options_.nvme != nullptr) {
    AddDisk(*options_.nvme, tiers.emplace_back());
    tiers.back().set_disk_bytes(options_.nvme_disk_bytes);
  }
  for (v1::TierStatus& tier : tiers) {
    tier.set_parameters(NumIn(tier.name(), state_.parameters()));
  }
  return tiers;
}

}  // namespace kaon::shard
