// A parameter of the backend conformance suite (backend_conformance.h). It is kept in host memory,
// and copied to a backend's space for each update. Used by tests only; one thread.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_PARAMETER_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_PARAMETER_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/copied_buffers.h"

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
                          std::vector<float>& new_weight) {
    const std::vector<Region> regions = StateRegions();
    return UpdateCopied(backend, rule, scalars, shape, {grad, weight, new_weight, regions});
  }

  // Returns copies for an update in place.
  std::unique_ptr<CopiedBuffers> Copied(Backend& backend, const std::vector<float>& grad) {
    const std::vector<Region> regions = StateRegions();
    return std::make_unique<CopiedBuffers>(backend, UpdateBuffers{grad, weight, weight, regions});
  }

  absl::Span<std::byte> StateBytesOf(size_t slot) {
    return {reinterpret_cast<std::byte*>(state[slot].data()),
            static_cast<size_t>(slots[slot].num_bytes)};
  }

  std::vector<Region> StateRegions() {
    std::vector<Region> regions;
    for (size_t k = 0; k < state.size(); ++k) regions.emplace_back(StateBytesOf(k));
    return regions;
  }

  RuleConfig rule;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<StateSlot> slots;
  // Elements of each fp32 slot. An encoded slot is kept as its bytes, padded to whole floats.
  std::vector<std::vector<float>> state;
};

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
