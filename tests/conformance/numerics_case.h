// One row of the numerics table (numerics_table.h). A plain value; any thread.
#ifndef KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_
#define KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_

#include <functional>
#include <string>

#include "kernels/backend.h"

namespace kaon::conformance {

struct NumericsCase {
  // Name of a rule: "muon", "adamw", "sgd", "lion". Rows about the time before every rule have
  // "gradient", "decision", "loss_scale" or "schedule".
  std::string rule;
  // Values of the dimensions. Unique together with `rule` and `compared`.
  std::string name;
  // Ids of the rules in numerics.md that the row shows, such as "[N2] [L4]".
  std::string rule_ids;
  // Description of the comparison.
  std::string compared;
  // Largest error that passes; 0 if the results must be equal.
  double tolerance = 0;
  // Returns the error; NaN fails.
  std::function<double(kernels::Backend&)> measure;
};

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_
