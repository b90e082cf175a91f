// Newton-Schulz of a device on the host. Used by tests only; one thread.
#ifndef KAON_TESTS_KERNELS_CUDA_MUON_ORTHOGONALIZER_H_
#define KAON_TESTS_KERNELS_CUDA_MUON_ORTHOGONALIZER_H_

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/muon/newton_schulz.h"
#include "kernels/orthogonalize/normalization.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/orthogonalize/newton_schulz_cases.h"

namespace kaon::kernels::cuda {

using Batch = std::vector<std::vector<float>>;

// Runs plans on one device.
class Orthogonalizer {
 public:
  explicit Orthogonalizer(uint64_t seed = 1)
      : device_(seed), symmetric_(device_.device(), device_.products()) {}

  ProductChoice& choice() { return choice_; }
  TestDevice& device() { return device_; }

  std::unique_ptr<NewtonSchulzPlan> Plan(const NewtonSchulzConfig& config, const WideBatch& shape,
                                         std::byte* memory) {
    auto plan = NewtonSchulzPlan::Create(
        {device_.device(), device_.products(), symmetric_, choice_, device_.on()}, config, shape,
        memory);
    CHECK(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  void Store(const NewtonSchulzConfig& config, const WideBatch& shape, const Batch& normalised,
             const NewtonSchulzPlan& plan) {
    device_.UploadMatrices(config.dtype, shape.r, shape.c, normalised, plan.x());
  }
  Batch Result(const NewtonSchulzConfig& config, const WideBatch& shape,
               const NewtonSchulzPlan& plan) {
    return device_.DownloadMatrices(config.dtype, shape.r, shape.c, shape.batch, plan.result());
  }

  // Orthogonalizes wide matrices.
  Batch Run(const NewtonSchulzConfig& config, int64_t r, int64_t c, const Batch& normalised) {
    const WideBatch shape = {r, c, static_cast<int64_t>(normalised.size())};
    const OwnedMemory memory = device_.Memory(NewtonSchulzPlan::MemoryBytes(config, shape));
    const auto plan = Plan(config, shape, memory.data());
    Store(config, shape, normalised, *plan);
    plan->Run();
    return Result(config, shape, *plan);
  }

 private:
  TestDevice device_;
  SymmetricProducts symmetric_;
  ProductChoice choice_;
};

inline std::vector<float> NormalisedMatrix(const NewtonSchulzTestCase& c, std::vector<float> in) {
  double squares = 0;
  double largest = 0;
  for (const float x : in) {
    squares += static_cast<double>(x) * x;
    largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  const Normalization by =
      NormalizationOf({NormMode::kScaleInvariant, 0, c.exact.safety_factor}, squares, largest);
  for (float& x : in) x = Normalized(by, x);
  return in;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_MUON_ORTHOGONALIZER_H_
