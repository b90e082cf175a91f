// One row of the numerics table (numerics_table.h). A plain value; any thread.
#ifndef KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_
#define KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_

#include <functional>
#include <string>

#include "kernels/backend.h"

namespace kaon::conformance {

struct NumericsCase {
  // "muon", "adamw", "sgd", "lion"; or, for what comes before every rule, "gradient", "decision",
  // "loss_scale", "schedule".
  std::string rule;
  // Unique with `rule` and `compared`: the values of the dimensions.
  std::string name;
  // Of numerics.md: "[N2] [L4]".
  std::string rule_ids;
  // What is compared with what.
  std::string compared;
  // Largest error that passes; 0 where the results must be equal.
  double tolerance = 0;
  // The error; NaN fails.
  std::function<double(kernels::Backend&)> measure;
};

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_NUMERICS_CASE_H_
