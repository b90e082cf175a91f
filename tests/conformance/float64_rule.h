// Every optimizer rule in float64, composed from the text of numerics.md ([M1]-[M6], [A1]-[A5],
// [G1], [G2], [W1], [Q1]): what the numerics table compares backends with. Reads the kernels'
// configuration structs, runs none of their code. A value type; one thread.
#ifndef KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
#define KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/float64_orthogonalize.h"

namespace kaon::conformance {

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
              std::vector<double> grad, std::vector<double>& param);
  void Update(const kernels::AdamWConfig& config, const kernels::UpdateScalars& scalars,
              std::vector<double> grad, std::vector<double>& param);
  void Update(const kernels::SgdConfig& config, const kernels::UpdateScalars& scalars,
              std::vector<double> grad, std::vector<double>& param);
  void Update(const kernels::LionConfig& config, const kernels::UpdateScalars& scalars,
              std::vector<double> grad, std::vector<double>& param);
  // Slot `index`, zeros at first.
  std::vector<double>& Slot(size_t index);

  const kernels::RuleConfig rule_;
  const std::vector<uint64_t> shape_;
  const Stored stored_;
  const size_t num_elements_;
  std::vector<std::vector<double>> state_;
};

// What a momentum buffer reads back as after it was stored as `dtype`.
std::vector<double> StoredAs(kernels::StateDType dtype, std::vector<double> x);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_FLOAT64_RULE_H_
