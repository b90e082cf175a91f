#include "tests/conformance/numerics_table.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/conformance/decision_cases.h"
#include "tests/conformance/element_wise_cases.h"
#include "tests/conformance/gradient_cases.h"
#include "tests/conformance/multi_step_cases.h"
#include "tests/conformance/muon_cases.h"

namespace kaon::conformance {

std::vector<NumericsCase> NumericsCases() {
  std::vector<NumericsCase> all;
  for (auto cases :
       {GradientCases(), DecisionCases(), MultiStepCases(), MuonCases(), ElementWiseCases()}) {
    for (NumericsCase& numerics_case : cases) all.push_back(std::move(numerics_case));
  }
  return all;
}

NumericsResult Run(const NumericsCase& numerics_case, kernels::Backend& backend) {
  NumericsResult result;
  result.numerics_case = numerics_case;
  const absl::Time start = absl::Now();
  result.error = numerics_case.measure(backend);
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  result.passed = result.error <= numerics_case.tolerance;
  return result;
}

}  // namespace kaon::conformance
