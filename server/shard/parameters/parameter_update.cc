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
  for (size_t i = 0; i < parameter.state.size(); ++i) state_.push_back(parameter.slot(i));
}

kernels::Update ParameterUpdate::ForBackend(kernels::UpdatePart part,
                                            const ParameterPublisher& publisher,
                                            kernels::Region new_weights) const {
  kernels::UpdateBuffers buffers;
  buffers.grad = gradient_;
  buffers.param = publisher.current(parameter_.id);
  buffers.new_param = new_weights;
  buffers.state = state_;
  buffers.part = part;
  return {&*parameter_.rule, scalars_, parameter_.shape, buffers, {}};
}

void RunUpdates(kernels::Backend& backend, const ParameterPublisher& publisher,
                absl::Span<DecidedUpdate> updates) {
  std::vector<kernels::Update> run;
  run.reserve(updates.size());
  for (const DecidedUpdate& update : updates) {
    const auto part =
        update.ahead.has_value() ? kernels::UpdatePart::kState : kernels::UpdatePart::kAll;
    run.push_back(update.update.ForBackend(part, publisher, update.new_weights));
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
