// Finishes sums to gradients and writes them to the journal; restores gradients from it.
#include <glog/logging.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/region.h"
#include "proto/status_macros.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

namespace {

// 1 MiB. The journal rewrites an entry after a full disk, so slices must be small. The header of a
// record must cost little next to its values, so slices must not be tiny.
constexpr size_t kMaxSliceElements = size_t{1} << 18;

Divisors DivisorsOf(const v1::StepPlan& plan) {
  Divisors divisors;
  if (plan.step().kind() != v1::STEP_KIND_TRAIN) return divisors;
  double sum = 0;
  for (const v1::Member& member : plan.step().members()) sum += member.token_weight();
  divisors.total_weight = static_cast<float>(sum);
  divisors.loss_scale = static_cast<float>(plan.step().loss_scale());
  return divisors;
}

// Ends the process if a disk failed: the shard cannot vote, and a restart has the journal.
tier::PageHold ValueOrDie(absl::StatusOr<tier::PageHold> hold) {
  CHECK(hold.ok()) << hold.status();
  return *std::move(hold);
}

}  // namespace

void GradientAccumulator::CheckSettledLocked(Parameter& parameter, uint64_t generation,
                                             Calls* calls) {
  if (parameter.announced || !parameter.fold->IsSettled()) return;
  parameter.announced = true;
  calls->push_back([this, generation, id = parameter.fold->parameter_id()] {
    options_.on_parameter_folded(generation, id);
  });
}

const v1::ParameterSums& GradientAccumulator::FinishLocked(Parameter& parameter,
                                                           const Divisors& divisors) {
  const Reduction& reduction = reductions_[parameter.fold->parameter_id()];
  tier::PageHold hold;
  if (parameter.fold->FinishWrites(reduction)) hold = ValueOrDie(parameter.sum->PinForWrite());
  return parameter.fold->Finish(divisors, reduction);
}

bool GradientAccumulator::AppendLocked(Parameter& parameter, journal::GradientSlice slice,
                                       const AppendSlice& append) {
  if (std::exchange(parameter.appended, true) || parameter.fold->missing()) return false;
  kernels::ConstRegion sum = parameter.fold->sum();
  if (sum.space() != kernels::Space::kHost) sum = parameter.sum->CopyToStaging();
  if (sum.empty()) return false;
  // The journal computes checksums now, and writes the values later.
  const tier::PageHold hold = ValueOrDie(parameter.sum->Pin());
  if (parameter.sum->swapped().has_value())
    slice.pin = [&parameter] { return parameter.sum->Pin(); };
  const absl::Span<const float> values = sum.host_floats();
  slice.parameter_id = parameter.fold->parameter_id();
  for (slice.offset = 0; slice.offset < values.size(); slice.offset += slice.values.size()) {
    slice.values = values.subspan(slice.offset, kMaxSliceElements);
    append(slice);
  }
  return true;
}

bool GradientAccumulator::FinishParameter(uint64_t generation, uint32_t parameter_id,
                                          const AppendSlice& append) {
  journal::GradientSlice slice;
  slice.generation = generation;
  Divisors divisors;
  {
    MutexLock lock(mu_);
    if (generation != generation_) return false;
    slice.position = plan_->position();
    divisors = DivisorsOf(*plan_);
  }
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  FinishLocked(parameter, divisors);
  return AppendLocked(parameter, slice, append);
}

std::optional<v1::Prepared> GradientAccumulator::FinishSums(uint64_t generation) {
  v1::Prepared prepared;
  Divisors divisors;
  std::vector<Parameter*> active;
  {
    MutexLock lock(mu_);
    if (generation != generation_ || !folded_) return std::nullopt;
    divisors = DivisorsOf(*plan_);
    for (const auto& [rank, worker] : workers_) {
      if (!worker.loss.has_value()) continue;
      v1::WorkerLoss* loss = prepared.add_losses();
      loss->set_rank(rank);
      loss->set_loss(*worker.loss);
    }
    for (auto& [id, parameter] : parameters_) {
      if (IsActiveLocked(*parameter)) active.push_back(parameter.get());
    }
  }
  uint64_t digest = 0;
  std::map<uint32_t, double> squares;
  for (Parameter* parameter : active) {
    MutexLock parameter_lock(parameter->mu);
    ParameterFold& fold = *parameter->fold;
    *prepared.add_sums() = FinishLocked(*parameter, divisors);
    digest += fold.gradient_digest();
    fold.AddSumSquares(&squares);
    const std::optional<int32_t> rank = fold.first_non_finite_rank();
    if (rank.has_value() && !prepared.has_first_non_finite()) {
      prepared.mutable_first_non_finite()->set_parameter_id(fold.parameter_id());
      prepared.mutable_first_non_finite()->set_rank(*rank);
    }
  }
  prepared.set_gradient_digest(digest);
  for (const auto& [rank, sum_squares] : squares) {
    v1::WorkerSum* sum = prepared.add_worker_sums();
    sum->set_rank(rank);
    sum->set_sum_squares(sum_squares);
  }
  return prepared;
}

void GradientAccumulator::AppendGradient(uint64_t generation, const AppendSlice& append) {
  journal::GradientSlice slice;
  slice.generation = generation;
  {
    MutexLock lock(mu_);
    if (generation != generation_ || !folded_) return;
    slice.position = plan_->position();
  }
  for (const auto& [id, parameter] : parameters_) {
    MutexLock parameter_lock(parameter->mu);
    if (parameter->generation != generation || !parameter->fold->finished()) continue;
    AppendLocked(*parameter, slice, append);
  }
}

std::optional<uint64_t> GradientAccumulator::num_elements(uint32_t parameter_id) const {
  const auto found = parameters_.find(parameter_id);
  if (found == parameters_.end()) return std::nullopt;
  return found->second->sum->region().num_floats();
}

void GradientAccumulator::RestoreValues(uint32_t parameter_id, uint64_t offset,
                                        absl::Span<const float> values) {
  SumMemory& sum = *parameters_.at(parameter_id)->sum;
  const tier::PageHold hold = ValueOrDie(sum.PinForWrite());
  options_.backend->CopyIn(kernels::ConstRegion(values).host_bytes(),
                           sum.region().SubFloats(offset, values.size()));
}

absl::Status GradientAccumulator::RestoreFolded(const v1::StepPlan& plan, uint64_t generation,
                                                const v1::Prepared& facts) {
  std::map<uint32_t, const v1::ParameterSums*> sums;
  for (const v1::ParameterSums& one : facts.sums()) sums[one.parameter_id()] = &one;
  const std::vector<v1::Member> members(plan.step().members().begin(), plan.step().members().end());
  const bool loading = plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  MutexLock lock(mu_);
  plan_ = plan;
  generation_ = generation;
  folded_ = true;
  for (auto& [id, parameter] : parameters_) {
    MutexLock parameter_lock(parameter->mu);
    parameter->generation = 0;
    if (!IsActiveLocked(*parameter)) continue;
    const auto found = sums.find(id);
    if (found == sums.end()) {
      return absl::DataLossError(
          absl::StrCat("PREPARE says nothing of parameter ", parameter->fold->name()));
    }
    parameter->fold->Restore(members, loading, *found->second);
    // Another push must not finish the parameter again.
    parameter->announced = true;
    parameter->appended = true;
    parameter->generation = generation;
  }
  ResetWorkersLocked(0);
  // Workers that reconnect need not resend anything.
  for (auto& [rank, worker] : workers_) worker.finished = true;
  return absl::OkStatus();
}

}  // namespace kaon::shard
