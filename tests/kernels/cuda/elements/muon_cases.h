// Comparisons of Muon's element-wise kernels, run on the host, with the CPU's code. Each returns
// the first difference in words, or an empty string. `seed` chooses values and the order of
// threads. Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_CUDA_ELEMENTS_MUON_CASES_H_
#define KAON_TESTS_KERNELS_CUDA_ELEMENTS_MUON_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/elements/muon_elements.h"
#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {

struct MomentumCase {
  // Sizes of the parameters of one batch.
  std::vector<int64_t> sizes;
  StateDType state_dtype = StateDType::kFloat32;
  DType grad_dtype = DType::kFloat32;
  Values values = Values::kGaussian;
  bool nesterov = true;
  float l2 = 0;
  // UpdatePart::kWeights and UpdatePart::kState.
  bool writes_state = true;
  bool writes_direction = true;
};
std::string CompareMomentum(const MomentumCase& momentum, uint64_t seed);

// Places of the rows of a matrix in its parameter.
enum class Rows {
  kContiguous,
  // Gaps separate the rows.
  kStrided,
  // The last row comes first.
  kListed
};

struct MatrixCase {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 1;
  NsDType dtype = NsDType::kBFloat16;
  NormMode norm_mode = NormMode::kScaleInvariant;
  Values values = Values::kGaussian;
  Rows layout = Rows::kContiguous;
  bool in_place = false;
  // Added to every index of the parameter.
  int64_t first_element = 0;
};
// Compares norms, normalized matrices, and weights after an arbitrary orthogonal matrix.
std::string CompareMatrices(const MatrixCase& matrices, uint64_t seed);

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_ELEMENTS_MUON_CASES_H_
