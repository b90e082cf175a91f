// One step that job/decide.h decides on the sums of a backend, compared with the float64 reference.
// Plain values and functions of them; any thread, as far as the backend allows.
#ifndef KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_
#define KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"
#include "tests/kernels/reference/float64_decision.h"

namespace kaon::conformance {

// One step in two forms: a job with its gradients, and the input of the reference.
struct DecisionTrial {
  v1::JobDefinition job;
  // Gradients by parameter, in fp32. `parameters` says which ones are missing.
  std::vector<std::vector<float>> gradients;
  reference::DecisionPolicy policy;
  // Their gradients are filled in from `gradients`.
  std::vector<reference::DecisionParameter> parameters;
  int num_shards = 1;
};

// The job with every default, its parameters dealt out over the shards in turn. CHECKs that the job
// is valid.
v1::RegisterBody Registration(const v1::JobDefinition& job, int num_shards);

// Returns how many facts of the outcome differ: applied, norms present, counters, exemptions.
double OutcomeError(const DecisionTrial& trial, kernels::Backend& backend);

// Returns the largest relative error of a norm or of a clip factor; 0 if the step has none.
double NormError(const DecisionTrial& trial, kernels::Backend& backend);
double FactorError(const DecisionTrial& trial, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_
