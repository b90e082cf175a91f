// What the numerics table compares backends with: a kernels' configuration run by the float64
// reference of tests/kernels/reference, which is the only one there is, for tests and for kaonctl
// verify-numerics alike. Translates options and keeps state as they say; all arithmetic but the
// rounding of a stored momentum ([Q1]) is the reference's. A value type; one thread.
#ifndef KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
#define KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace kaon::conformance {

// What a stored iterate of Newton-Schulz becomes: X, A and B (in the Gram form X, R, Z, Q and RZ)
// are rounded to the configuration's dtype, or not ([N6], [N9]).
enum class Stored { kExact, kAsConfigured };

// Steps of a set where the configuration leaves them open: all its triples, at least 5; of a custom
// set 5.
int NaturalSteps(kernels::NsCoefficients set);

class Float64Rule {
 public:
  // `stored` is about Newton-Schulz; a momentum buffer is rounded as configured in any case, for it
  // is read again.
  Float64Rule(kernels::RuleConfig rule, std::vector<uint64_t> shape, Stored stored);

  void Step(const kernels::UpdateScalars& scalars, const std::vector<double>& grad,
            std::vector<double>& param);

  // As StateSlots() orders them.
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
  // Slot `index`, zeros at first.
  std::vector<double>& Slot(size_t index);

  const kernels::RuleConfig rule_;
  const std::vector<uint64_t> shape_;
  const Stored stored_;
  const size_t num_elements_;
  std::vector<std::vector<double>> state_;
};

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
