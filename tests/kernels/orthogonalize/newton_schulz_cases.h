// Every configuration of Newton-Schulz that passes validation at its usual number of steps, with
// the float64 versions that [N9] compares it with. Used by tests only; pure functions.
#ifndef KAON_TESTS_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_CASES_H_
#define KAON_TESTS_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_CASES_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/orthogonalize/coefficients.h"
#include "kernels/orthogonalize/newton_schulz.h"
#include "kernels/orthogonalize/newton_schulz_validation.h"
#include "tests/kernels/reference/float64_newton_schulz.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

struct NewtonSchulzTestCase {
  std::string set;
  NewtonSchulzConfig config;
  // Standard form without rounding.
  reference::NewtonSchulzCase exact;
  // The same form, which rounds wherever the implementation stores.
  reference::NewtonSchulzCase emulator;

  std::string Name() const {
    const char* const dtypes[] = {"fp32", "bf16", "fp16"};
    return absl::StrCat(set, " ", config.steps, " steps ", dtypes[static_cast<int>(config.dtype)],
                        config.form == NsForm::kGram ? " gram" : " standard");
  }
};

inline NewtonSchulzTestCase TestCase(const NewtonSchulzCoefficientSet& set, int steps,
                                     NsDType dtype, NsForm form) {
  NewtonSchulzTestCase c;
  c.set = std::string(set.name);
  c.config.coefficients = set.id;
  c.config.steps = steps;
  c.config.dtype = dtype;
  c.config.form = form;
  if (form == NsForm::kGram) {
    c.config.gram_restarts = {2};
    for (int at = 4; steps > 5 && at < steps; at += 2) c.config.gram_restarts.push_back(at);
  }
  c.exact.triples = reference::TriplesOfSet(c.set, steps);
  c.exact.safety_factor = reference::SafetyFactorOfSet(c.set);
  c.emulator = c.exact;
  c.emulator.gram = form == NsForm::kGram;
  c.emulator.gram_restarts = c.config.gram_restarts;
  if (dtype == NsDType::kBFloat16) c.emulator.store = &reference::RoundToBFloat16;
  if (dtype == NsDType::kFloat16) c.emulator.store = &reference::RoundToFloat16;
  return c;
}

inline std::vector<NewtonSchulzTestCase> EveryNewtonSchulzCase() {
  std::vector<NewtonSchulzTestCase> cases;
  for (const NewtonSchulzCoefficientSet& set : NewtonSchulzCoefficientSets()) {
    std::vector<int> steps = {5};
    if (set.repeat == NsRepeat::kFixed) steps = {static_cast<int>(set.triples.size())};
    if (set.triples.size() == 8) steps.push_back(8);
    for (const int n : steps) {
      for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16}) {
        for (const NsForm form : {NsForm::kStandard, NsForm::kGram}) {
          const NewtonSchulzTestCase c = TestCase(set, n, dtype, form);
          if (ValidateNewtonSchulz(c.config).ok()) cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

// Writes the rows of the result one after the other into `out`, which may be `in`. Otherwise the
// contents of `in` are lost.
inline void OrthogonalizeInto(const NewtonSchulzConfig& config, MatrixShape shape,
                              absl::Span<float> in, Gemm& gemm, absl::Span<float> out) {
  ThreadPool pool(1);
  NewtonSchulz(config, {shape, in, absl::nullopt}, gemm, pool,
               [out](int64_t first, absl::Span<const float> values) {
                 std::copy(values.begin(), values.end(), out.begin() + first);
               });
}

inline std::vector<float> OrthogonalizedBy(Gemm& gemm, const NewtonSchulzConfig& config, int rows,
                                           int cols, std::vector<float> in) {
  std::vector<float> out(in.size(), std::nanf(""));
  OrthogonalizeInto(config, {rows, cols}, absl::MakeSpan(in), gemm, absl::MakeSpan(out));
  return out;
}

inline std::vector<float> Orthogonalized(const NewtonSchulzConfig& config, int rows, int cols,
                                         const std::vector<float>& in) {
  ReferenceGemm gemm;
  return OrthogonalizedBy(gemm, config, rows, cols, in);
}

inline std::vector<float> Times(double factor, std::vector<float> x) {
  for (float& value : x) value = static_cast<float>(factor * value);
  return x;
}

inline std::vector<float> Transposed(const std::vector<float>& x, int rows, int cols) {
  std::vector<float> transposed(x.size());
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) transposed[j * rows + i] = x[i * cols + j];
  }
  return transposed;
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_CASES_H_
