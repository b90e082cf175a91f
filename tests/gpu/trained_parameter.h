// One parameter that a backend steps: the same numbers on each backend, so that two can be
// compared. The creator owns it, and the backend outlives it. One thread at a time.
#ifndef KAON_TESTS_GPU_TRAINED_PARAMETER_H_
#define KAON_TESTS_GPU_TRAINED_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace kaon::gpu_check {

class TrainedParameter {
 public:
  struct Options {
    kernels::RuleConfig rule;
    std::vector<uint64_t> shape;
    kernels::DType grad_dtype = kernels::DType::kFloat32;
    // The new weights replace the old ones, or have memory of their own.
    bool in_place = true;
    uint64_t seed = 1;
    // Copies a block of numbers over the whole parameter: quick for large ones.
    bool repeats_numbers = false;
  };

  // The backend must have the memory (CHECK).
  TrainedParameter(kernels::Backend& backend, Options options);

  // Returns the update of step `t`, from 1. It refers to this object.
  kernels::Update Step(int64_t t, kernels::UpdatePart part = kernels::UpdatePart::kAll);
  // The new weights become the old ones.
  void Commit();
  // Restores the first weights and zeroes the state.
  void Reset();

  int64_t num_elements() const { return num_elements_; }
  // Returns the newest weights of the last Step.
  std::vector<float> Weights() const;
  // Returns the bytes of all state slots, one after the other.
  std::vector<std::byte> State() const;
  // Returns the digest of weights and state.
  uint64_t Digest() const;

 private:
  kernels::Region target() const;

  kernels::Backend& backend_;
  const Options options_;
  int64_t num_elements_ = 1;
  std::vector<std::byte> first_weights_;
  kernels::Tensor grad_;
  kernels::Tensor weights_;
  kernels::Tensor new_weights_;
  std::vector<kernels::Tensor> slots_;
  std::vector<kernels::Region> state_;
};

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_TRAINED_PARAMETER_H_
