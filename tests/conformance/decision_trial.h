// One step decided by job/decide.h on the sums that a backend takes, beside the same by the float64
// reference. Plain values and functions of them; any thread, as far as the backend allows.
#ifndef KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_
#define KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"
#include "tests/kernels/reference/float64_decision.h"

namespace kaon::conformance {

// The same step twice: as a job and its gradients, and as the reference takes it.
struct DecisionTrial {
  v1::JobDefinition job;
  // By parameter, in fp32; missing ones are said in `expected_of`.
  std::vector<std::vector<float>> gradients;
  reference::DecisionPolicy policy;
  // Their gradients are filled in from `gradients`.
  std::vector<reference::DecisionParameter> parameters;
  int num_shards = 1;
};

// The job with every default, its parameters dealt out over the shards in turn. CHECKs that the job
// is valid.
v1::RegisterBody Registration(const v1::JobDefinition& job, int num_shards);

// How many facts of the outcome differ: applied, norms present, counters, exemptions.
double OutcomeError(const DecisionTrial& trial, kernels::Backend& backend);

// The largest relative error of a norm, or of a clip factor; 0 where there are none.
double NormError(const DecisionTrial& trial, kernels::Backend& backend);
double FactorError(const DecisionTrial& trial, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_DECISION_TRIAL_H_
