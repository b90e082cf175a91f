// Comparisons of the element-wise kernels, run on the host, with the CPU's code. Each returns the
// first difference in words, or an empty string. `seed` chooses values and the order of threads.
// Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_CUDA_ELEMENTS_ELEMENT_CASES_H_
#define KAON_TESTS_KERNELS_CUDA_ELEMENTS_ELEMENT_CASES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels::cuda {

enum class Values {
  kGaussian,
  // Gaussian, with zeros of both signs, subnormal and very small and large numbers among them.
  kFinite,
  // So small that their squares vanish in fp32.
  kTiny,
  kZero,
  // Some are infinite.
  kInfinite,
  // Some are NaN or infinite.
  kNan
};

std::vector<float> MakeValues(int64_t n, Values kind, uint64_t seed);

// Returns true if the bits agree; all NaN are equal.
bool AreEqual(const std::vector<float>& x, const std::vector<float>& y);

// Sizes around whole vectors, groups and blocks.
inline constexpr int64_t kSizes[] = {1, 3, 31, 511, 512, 1024, 1025, 4096, 4097, 9000};

struct FoldCase {
  DType dtype = DType::kFloat32;
  int64_t num_elements = 0;
  Values values = Values::kGaussian;
  // Distance of the chunk from a multiple of 256 bytes, and of the sum in elements.
  size_t shift_bytes = 0;
  size_t sum_shift = 0;
};
// Folds two chunks of one contribution; the first one begins the sum.
std::string CompareFold(const FoldCase& fold, uint64_t seed);

struct MeanCase {
  int64_t num_elements = 0;
  Values values = Values::kGaussian;
  float total_weight = 3;
  float loss_scale = 1024;
  bool takes_sum = true;
  size_t shift = 0;
};
std::string CompareMean(const MeanCase& mean, uint64_t seed);

struct UpdateCase {
  // Not Muon.
  RuleConfig rule;
  int64_t num_elements = 0;
  DType grad_dtype = DType::kFloat32;
  Values values = Values::kFinite;
  bool in_place = false;
  size_t shift = 0;
};
std::string CompareUpdate(const UpdateCase& update, uint64_t seed);

std::string CompareDigest(int64_t num_bytes, size_t shift, uint64_t seed);
std::string CompareMaxMagnitude(int64_t num_elements, Values values, uint64_t seed);
std::string CompareRound(DType dtype, int64_t num_elements, size_t shift, uint64_t seed);

// The rules of update_test, with each kind of slot.
std::vector<RuleConfig> ElementWiseConfigs();

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_ELEMENTS_ELEMENT_CASES_H_
