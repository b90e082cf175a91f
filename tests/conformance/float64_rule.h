// Runs the configuration of a kernel by the float64 reference of tests/kernels/reference. The
// numerics table compares backends with it, in tests and in kaonctl verify-numerics. Translates
// options and keeps the state as they demand. The reference does all arithmetic except the rounding
// of a stored momentum ([Q1]). A value type; one thread.
#ifndef KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
#define KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace kaon::conformance {

// Precision of the stored iterates of Newton-Schulz ([N6], [N9]): exact, or rounded to the
// configured dtype. The iterates are X, A and B; in the Gram form X, R, Z, Q and RZ.
enum class Stored { kExact, kAsConfigured };

// Returns the number of steps of a set whose configuration names none: all its triples, at least 5.
// A custom set has 5.
int NaturalSteps(kernels::NsCoefficients set);

class Float64Rule {
 public:
  // `stored` applies to Newton-Schulz only. A momentum buffer is always rounded as configured,
  // because later steps read it.
  Float64Rule(kernels::RuleConfig rule, std::vector<uint64_t> shape, Stored stored);

  void Step(const kernels::UpdateScalars& scalars, const std::vector<double>& grad,
            std::vector<double>& param);

  // State slots in the order of StateSlots().
  const std::vector<std::vector<double>>& state() const { return state_; }

 private:
  void Update(const kernels::MuonConfig& config, const kernels::UpdateScalars& scalars,
              const std::vector<double>& grad, std::vector<double>& param);
  void Update(const kernels::AdamWConfig& config, const kernels::UpdateScalars& scalars,
              const std::vector<double>& grad, std::vector<double>& param);
  void Update(const kernels::SgdConfig& config, const kernels::UpdateScalars& scalars,
              const std::vector<double>& grad, std::vector<double>& param);
  void Update(const kernels::LionConfig& config, const kernels::UpdateScalars& scalars,
              const std::vector<double>& grad, std::vector<double>& param);
  // Returns slot `index`; it begins as zeros.
  std::vector<double>& Slot(size_t index);

  const kernels::RuleConfig rule_;
  const std::vector<uint64_t> shape_;
  const Stored stored_;
  const size_t num_elements_;
  std::vector<std::vector<double>> state_;
};

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
