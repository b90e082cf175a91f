#include "server/shard/parameters/speculation.h"

#include <variant>

#include "kernels/optimizer_rule.h"
#include "proto/failpoint.h"
#include "server/mutation/mutation.h"
#include "server/shard/parameters/parameter_update.h"

namespace kaon::shard {

namespace {

bool AreEqual(const kernels::UpdateScalars& a, const kernels::UpdateScalars& b) {
  return a.lr == b.lr && a.clip_factor == b.clip_factor && a.t == b.t &&
         a.parameter_id == b.parameter_id;
}

}  // namespace

// A group that neither clips nor counts for the skip threshold does not need the decision
// (protocol.md 2.2). Its momentum and orthogonalized update are computed as soon as its gradient is
// folded and rounded. In the protocol's text, they go to scratch tagged (ballot, round, attempts),
// swapped in on apply and dropped on skip or re-round. Here only the weights are computed, in the
// buffer of the next version, tagged with the generation of the sums. So there is no scratch and
// nothing to swap (ADR 0026).
void Speculation::Begin(const v1::StepPlan& plan, uint64_t generation) {
  if (!Mutated(Mutation::kSpeculationKept)) End();
  if (plan.step().kind() != v1::STEP_KIND_TRAIN) return;
  generation_ = generation;
  step_ = plan.step();
}

void Speculation::OnGradient(uint64_t generation, const ParameterStore& parameters,
                             uint32_t parameter_id) {
  if (generation_ == 0 || generation != generation_ || computed_.count(parameter_id) > 0) return;
  const StoredParameter& parameter = parameters.Get(parameter_id);
  // Weights on a disk would be read for it once more.
  if (!parameter.rule.has_value() || !parameter.is_in_memory()) return;
  if (!std::holds_alternative<kernels::MuonConfig>(*parameter.rule)) return;
  if (step_.step() <= parameter.trace.watched_until_step) return;
  if (accumulator_.UnclippedGradient(generation, parameter_id).empty()) return;
  waiting_.insert(parameter_id);
}

void Speculation::End() {
  generation_ = 0;
  waiting_.clear();
  computed_.clear();
}

void Speculation::ComputeOne(const ParameterStore& parameters, const v1::Placement& placement) {
  const uint32_t id = *waiting_.begin();
  waiting_.erase(waiting_.begin());
  const kernels::ConstRegion gradient = accumulator_.UnclippedGradient(generation_, id);
  if (gradient.empty()) return;
  const ParameterUpdate update(parameters.Get(id), step_,
                               placement.parameters(static_cast<int>(id)), 1, gradient);
  // The step's own pin gets the same memory, although this one is dropped.
  const absl::StatusOr<tier::UnitUpdatePin> pinned = publisher_.BeginWrite(id);
  if (!pinned.ok()) return;
  kernels::Update weights = update.ForBackend(kernels::UpdatePart::kWeights, *pinned);
  backend_.RunUpdates(absl::MakeSpan(&weights, 1));
  PassFailpoint(Failpoint::speculation_written);
  computed_[id] = {update.scalars(), weights.result};
}

std::optional<kernels::UpdateResult> Speculation::Take(const kernels::UpdateScalars& scalars) {
  const auto found = computed_.find(scalars.parameter_id);
  if (found == computed_.end() || !AreEqual(found->second.scalars, scalars)) return std::nullopt;
  const kernels::UpdateResult result = found->second.result;
  computed_.erase(found);
  return result;
}

}  // namespace kaon::shard
