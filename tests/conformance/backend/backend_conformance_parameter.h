// A parameter of the backend conformance suite (backend_conformance.h), kept in host memory, and
// its tensors in a backend's space during an update. Used by tests only; one thread.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_PARAMETER_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_PARAMETER_H_

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace kaon::kernels {

// One parameter with its state, updated through a backend.
struct Parameter {
  Parameter(const RuleConfig& rule, std::vector<uint64_t> shape, std::vector<float> values)
      : rule(rule), shape(std::move(shape)), weight(std::move(values)) {
    slots = StateSlots(rule, this->shape);
    for (const StateSlot& slot : slots) {
      state.emplace_back((slot.num_bytes + sizeof(float) - 1) / sizeof(float), 0.0f);
    }
  }

  UpdateResult Update(Backend& backend, const std::vector<float>& grad,
                      const UpdateScalars& scalars) {
    return Update(backend, GradView(grad), scalars);
  }

  // `grad` is host memory.
  UpdateResult Update(Backend& backend, const GradView& grad, const UpdateScalars& scalars) {
    return UpdateInto(backend, grad, scalars, weight);
  }

  UpdateResult UpdateInto(Backend& backend, const GradView& grad, const UpdateScalars& scalars,
                          std::vector<float>& new_weight);

  absl::Span<std::byte> StateBytesOf(size_t slot) {
    return {reinterpret_cast<std::byte*>(state[slot].data()),
            static_cast<size_t>(slots[slot].num_bytes)};
  }

  RuleConfig rule;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<StateSlot> slots;
  // Elements of each fp32 slot. An encoded slot is kept as its bytes, padded to whole floats.
  std::vector<std::vector<float>> state;
};

// The tensors of one update. The parameter outlives this object.
class UpdateTensors {
 public:
  // The update is in place if `new_weight` is the parameter's weight.
  UpdateTensors(Backend& backend, Parameter& parameter, const GradView& grad,
                const std::vector<float>& new_weight)
      : parameter_(parameter),
        grad_dtype_(grad.dtype()),
        grad_(backend, grad.region().host_bytes()),
        weight_(backend, parameter.weight) {
    if (&new_weight != &parameter.weight) new_weight_.emplace_back(backend, new_weight);
    for (size_t k = 0; k < parameter.state.size(); ++k) {
      state_.emplace_back(backend, absl::MakeConstSpan(parameter.StateBytesOf(k)));
      regions_.push_back(state_.back().region());
    }
  }

  // Returns the buffers, which are valid as long as this object.
  UpdateBuffers buffers() const {
    const Tensor& to = new_weight_.empty() ? weight_ : new_weight_.front();
    return {GradView(grad_dtype_, grad_.region()), weight_.region(), to.region(), regions_};
  }
  Update UpdateBy(const UpdateScalars& scalars) const {
    return {&parameter_.rule, scalars, parameter_.shape, buffers(), {}};
  }

  // Copies all tensors back to the parameter, and the new weights to `new_weight`.
  void Read(std::vector<float>& new_weight) const {
    weight_.Read(absl::MakeSpan(parameter_.weight));
    if (!new_weight_.empty()) new_weight_.front().Read(absl::MakeSpan(new_weight));
    for (size_t k = 0; k < state_.size(); ++k) state_[k].Read(parameter_.StateBytesOf(k));
  }

 private:
  Parameter& parameter_;
  const DType grad_dtype_;
  Tensor grad_;
  Tensor weight_;
  // Empty in place, otherwise one.
  std::vector<Tensor> new_weight_;
  std::vector<Tensor> state_;
  std::vector<Region> regions_;
};

inline UpdateResult Parameter::UpdateInto(Backend& backend, const GradView& grad,
                                          const UpdateScalars& scalars,
                                          std::vector<float>& new_weight) {
  const UpdateTensors tensors(backend, *this, grad, new_weight);
  const UpdateResult result = backend.ApplyUpdate(rule, scalars, shape, tensors.buffers());
  tensors.Read(new_weight);
  return result;
}

// Returns true if the bits are equal. -0 differs from 0, and a NaN equals itself.
inline bool SameBits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() &&
         (x.empty() || memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

// Compares bits, because an encoded slot that is read as floats may contain NaN.
inline bool SameState(const Parameter& x, const Parameter& y) {
  bool same = x.state.size() == y.state.size();
  for (size_t k = 0; same && k < x.state.size(); ++k) same = SameBits(x.state[k], y.state[k]);
  return same;
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_PARAMETER_H_
