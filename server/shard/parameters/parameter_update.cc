#include "server/shard/parameters/parameter_update.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kaon::shard {

ParameterUpdate::ParameterUpdate(const StoredParameter& parameter, const v1::StepBody& step,
                                 const v1::ParameterPlacement& placement, double clip_factor,
                                 absl::Span<const float> gradient)
    : parameter_(parameter), gradient_(gradient) {
  scalars_.lr = step.rates(parameter.group).learning_rate() * placement.lr_multiplier();
  scalars_.clip_factor = clip_factor;
  scalars_.t = static_cast<int64_t>(parameter.updates_applied) + 1;
  scalars_.parameter_id = parameter.id;
}

kernels::UpdateResult ParameterUpdate::Run(kernels::UpdatePart part, kernels::Backend& backend,
                                           const ParameterPublisher& publisher,
                                           absl::Span<float> new_weights) const {
  std::vector<absl::Span<std::byte>> state;
  for (size_t i = 0; i < parameter_.state.size(); ++i) {
    const auto num_bytes = static_cast<size_t>(parameter_.state_slots[i].num_bytes);
    state.push_back(parameter_.state[i].bytes().first(num_bytes));
  }
  kernels::UpdateBuffers buffers;
  buffers.grad = gradient_;
  buffers.param = publisher.current(parameter_.id);
  buffers.new_param = new_weights;
  buffers.state = state;
  buffers.part = part;
  return backend.ApplyUpdate(*parameter_.rule, scalars_, parameter_.shape, buffers);
}

void RunUpdates(kernels::Backend& backend, const ParameterPublisher& publisher,
                absl::Span<DecidedUpdate> updates) {
  const auto run = [&](DecidedUpdate& update) {
    const auto part =
        update.ahead.has_value() ? kernels::UpdatePart::kState : kernels::UpdatePart::kAll;
    update.result = update.update.Run(part, backend, publisher, update.new_weights);
    if (!update.ahead.has_value()) return;
    update.result.weights_digest = update.ahead->weights_digest;
    update.result.newton_schulz_calls = update.ahead->newton_schulz_calls;
    update.result.largest_weight_bits = update.ahead->largest_weight_bits;
    update.result.fault = update.ahead->fault;
  };
  // A single update gets all threads.
  if (updates.size() == 1) return run(updates[0]);
  backend.RunUpdates(static_cast<int64_t>(updates.size()),
                     [&](int64_t i) { run(updates[static_cast<size_t>(i)]); });
}

}  // namespace kaon::shard
