#include "server/shard/parameters/parameter_stats.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "kernels/dtype.h"
#include "kernels/orthogonality.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/state_codec.h"
#include "server/tier/host_view.h"

namespace kaon::shard {

namespace {

// Elements per block when decoding momentum and computing differences.
constexpr size_t kChunk = 4096;
static_assert(kChunk % kernels::kStateGroup == 0);

double NormOf(absl::Span<const float> values) {
  return std::sqrt(kernels::ComputeGradNorm(values).sum_squares);
}

double NormOfDifference(absl::Span<const float> a, absl::Span<const float> b) {
  CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

double NormOfState(const kernels::StateSlot& slot, absl::Span<const std::byte> bytes) {
  std::array<float, kChunk> chunk;
  const auto n = static_cast<size_t>(slot.num_elements);
  double sum = 0;
  for (size_t first = 0; first < n; first += kChunk) {
    const absl::Span<float> values(chunk.data(), std::min(kChunk, n - first));
    kernels::DecodeState(slot.dtype, bytes.first(slot.num_bytes), static_cast<int64_t>(first),
                         values);
    for (float value : values) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

const char* NameOf(kernels::StateDType dtype) {
  switch (dtype) {
    case kernels::StateDType::kFloat32:
      break;
    case kernels::StateDType::kBFloat16:
      return "bfloat16";
    case kernels::StateDType::kInt8:
      return "int8";
    case kernels::StateDType::kSqrtUInt8:
      return "sqrt_uint8";
  }
  return "float32";
}

v1::StoredTensor* AddTensor(const StoredParameter& parameter, const std::string& name,
                            v1::ParameterDiagnostics* diagnostics) {
  v1::StoredTensor* tensor = diagnostics->add_tensors();
  tensor->set_name(name);
  for (uint64_t size : parameter.shape) tensor->add_shape(size);
  return tensor;
}

}  // namespace

std::optional<double> GradNormOf(const ParameterTrace& trace) {
  if (!trace.sums.has_value() || trace.sums->missing() || trace.sums->num_non_finite() > 0) {
    return std::nullopt;
  }
  // No element's square underflows to 0 in float64. So a sum of 0 with a nonzero maximum means that
  // no sum was computed ([T5]).
  const double sum = trace.sums->sum_squares();
  if (sum == 0 && trace.sums->absolute_max() > 0) return std::nullopt;
  return std::sqrt(sum);
}

v1::ParameterStats StatsOf(const StoredParameter& parameter, kernels::Backend& backend,
                           kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                           kernels::ConstRegion previous) {
  const ParameterTrace& trace = parameter.trace;
  v1::ParameterStats stats;
  stats.set_parameter_id(parameter.id);
  const tier::HostView weights(backend, newest);
  stats.set_weight_norm(NormOf(weights.floats()));
  const std::optional<double> grad_norm = GradNormOf(trace);
  if (grad_norm.has_value()) stats.set_grad_norm(*grad_norm);
  if (trace.sums.has_value() && !trace.sums->missing()) {
    stats.set_grad_zeros(trace.sums->num_zeros());
  }
  if (trace.update.has_value() && !previous.empty()) {
    const tier::HostView before(backend, previous);
    stats.set_update_norm(NormOfDifference(weights.floats(), before.floats()));
    if (stats.weight_norm() > 0) {
      stats.set_update_to_weight_ratio(stats.update_norm() / stats.weight_norm());
    }
    if (const auto* muon = std::get_if<kernels::MuonConfig>(&trace.update->rule)) {
      const std::optional<double> error = kernels::OrthogonalityError(
          *muon, trace.update->lr, parameter.shape, before.floats(), weights.floats());
      if (error.has_value()) stats.set_orthogonality_error(*error);
    }
  }
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    const kernels::StateSlot& slot = parameter.state_slots[i];
    if (slot.name != "momentum_buffer" && slot.name != "exp_avg") continue;
    stats.set_momentum_norm(NormOfState(slot, tier::HostView(backend, states[i]).bytes()));
  }
  stats.set_newton_schulz_updates(parameter.newton_schulz_updates);
  stats.set_updates_applied(parameter.updates_applied);
  stats.set_non_finite_steps(trace.non_finite_steps);
  stats.set_non_finite_elements(trace.non_finite_elements);
  return stats;
}

v1::ParameterDiagnostics DiagnosticsOf(const StoredParameter& parameter,
                                       const kernels::Backend& backend) {
  const ParameterTrace& trace = parameter.trace;
  v1::ParameterDiagnostics diagnostics;
  diagnostics.set_parameter_id(parameter.id);
  v1::StoredTensor* weight = AddTensor(parameter, "weight", &diagnostics);
  weight->set_dtype(NameOf(kernels::StateDType::kFloat32));
  weight->set_bytes(parameter.weight_bytes() * (parameter.rule.has_value() ? 2 : 1));
  weight->set_first_used_step(trace.first_update_step);
  v1::StoredTensor* gradient = AddTensor(parameter, "gradient", &diagnostics);
  if (trace.gradient_dtype != v1::DTYPE_UNSPECIFIED) {
    // The two enumerations have equal values (kernels/dtype.h).
    const absl::string_view name =
        kernels::NameOf(static_cast<kernels::DType>(trace.gradient_dtype));
    gradient->set_dtype(std::string(name));
  } else if (trace.first_gradient_step > 0) {
    gradient->set_dtype("float32 zeros");
  }
  // The sum is fp32 for every pushed dtype.
  gradient->set_bytes(parameter.weight_bytes());
  gradient->set_first_used_step(trace.first_gradient_step);
  for (const kernels::StateSlot& slot : parameter.state_slots) {
    v1::StoredTensor* state = AddTensor(parameter, slot.name, &diagnostics);
    state->set_dtype(NameOf(slot.dtype));
    state->set_bytes(static_cast<uint64_t>(slot.num_bytes));
    state->set_first_used_step(trace.first_update_step);
  }
  if (parameter.rule.has_value()) {
    diagnostics.set_rule(kernels::RuleName(*parameter.rule));
    diagnostics.set_backend(backend.name());
  }
  // The sum of gradients is where the weights are. It comes second, before the state.
  for (int i = 0; i < diagnostics.tensors_size(); ++i) {
    const bool in_memory = parameter.HasInMemory(i < 2 ? 0 : i - 1);
    diagnostics.mutable_tensors(i)->set_tier(in_memory ? backend.memory_tier()
                                                       : std::string(parameter.place.home->name()));
  }
  return diagnostics;
}

}  // namespace kaon::shard
