#include "server/shard/parameters/parameter_update.h"

#include <cstdint>
#include <vector>

namespace kaon::shard {

ParameterUpdate::ParameterUpdate(const StoredParameter& parameter, const v1::StepBody& step,
                                 const v1::ParameterPlacement& placement, double clip_factor,
                                 kernels::ConstRegion gradient)
    : parameter_(parameter), gradient_(gradient) {
  scalars_.lr = step.rates(parameter.group).learning_rate() * placement.lr_multiplier();
  scalars_.clip_factor = clip_factor;
  scalars_.t = static_cast<int64_t>(parameter.updates_applied) + 1;
  scalars_.parameter_id = parameter.id;
}

kernels::Update ParameterUpdate::ForBackend(kernels::UpdatePart part,
                                            const tier::UnitUpdatePin& pinned) const {
  kernels::UpdateBuffers buffers;
  buffers.grad = gradient_;
  buffers.param = pinned.weights();
  buffers.new_param = pinned.next_weights();
  buffers.state = pinned.states();
  buffers.part = part;
  return {&*parameter_.rule, scalars_, parameter_.shape, buffers, {}};
}

void RunUpdates(kernels::Backend& backend, absl::Span<DecidedUpdate> updates) {
  std::vector<kernels::Update> run;
  run.reserve(updates.size());
  for (const DecidedUpdate& update : updates) {
    const auto part =
        update.ahead.has_value() ? kernels::UpdatePart::kState : kernels::UpdatePart::kAll;
    run.push_back(update.update.ForBackend(part, update.pinned));
  }
  backend.RunUpdates(absl::MakeSpan(run));
  for (size_t i = 0; i < updates.size(); ++i) {
    DecidedUpdate& update = updates[i];
    update.result = run[i].result;
    if (!update.ahead.has_value()) continue;
    update.result.weights_digest = update.ahead->weights_digest;
    update.result.newton_schulz_calls = update.ahead->newton_schulz_calls;
    update.result.largest_weight_bits = update.ahead->largest_weight_bits;
    update.result.fault = update.ahead->fault;
  }
}

}  // namespace kaon::shard
