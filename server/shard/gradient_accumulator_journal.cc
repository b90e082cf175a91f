// The accumulator's side of the journal: finished gradients on their way out, and read back.
#include "absl/strings/str_cat.h"
#include "server/shard/gradient_accumulator.h"

namespace kaon::shard {

namespace {

// 1 MiB: little enough that taking back what is not written waits for little, much enough that what
// a record costs beside its values does not count.
constexpr size_t kMaxSliceElements = size_t{1} << 18;

}  // namespace

void GradientAccumulator::AppendGradient(
    uint64_t generation, const std::function<void(const journal::GradientSlice&)>& append) const {
  journal::GradientSlice slice;
  slice.generation = generation;
  {
    MutexLock lock(mu_);
    if (generation != generation_ || !folded_) return;
    slice.position = plan_->position();
  }
  for (const auto& [id, parameter] : parameters_) {
    absl::Span<const float> values;
    {
      MutexLock parameter_lock(parameter->mu);
      if (parameter->generation != generation || parameter->fold->missing()) continue;
      values = parameter->fold->sum();
    }
    slice.parameter_id = id;
    for (slice.offset = 0; slice.offset < values.size(); slice.offset += slice.values.size()) {
      slice.values = values.subspan(slice.offset, kMaxSliceElements);
      append(slice);
    }
  }
}

std::optional<absl::Span<float>> GradientAccumulator::restorable_sum(uint32_t parameter_id) {
  const auto found = parameters_.find(parameter_id);
  if (found == parameters_.end()) return std::nullopt;
  return found->second->pin.floats();
}

absl::Status GradientAccumulator::RestoreFolded(const v1::StepPlan& plan, uint64_t generation,
                                                const v1::Prepared& facts) {
  std::map<uint32_t, bool> missing;
  for (const v1::ParameterSums& sums : facts.sums()) missing[sums.parameter_id()] = sums.missing();
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
    const auto found = missing.find(id);
    if (found == missing.end()) {
      return absl::DataLossError(
          absl::StrCat("PREPARE says nothing of parameter ", parameter->fold->name()));
    }
    parameter->fold->Restore(members, loading, found->second);
    parameter->generation = generation;
  }
  ResetWorkersLocked(0);
  // A worker that comes back need not send anything.
  for (auto& [rank, worker] : workers_) worker.finished = true;
  return absl::OkStatus();
}

}  // namespace kaon::shard
