// Does the work of coordinator and shards for one step, without servers. Folds the workers'
// gradients in rank order, decides, and steps every parameter by its route. Uses the servers'
// kernels in the servers' order and the job's decisions and rates, so the weights match bit for
// bit. Tests compare the service with it. Not thread-safe: owned by one LocalCluster or test.
#ifndef KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_
#define KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/kaon/client.h"
#include "client/train/training_session.h"
#include "job/norm_use.h"
#include "job/schedule.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace kaon::train {

class LocalOptimizer {
 public:
  LocalOptimizer(LocalOptimizer&&) = default;

  // Returns INVALID_ARGUMENT for a job that a coordinator would reject, or for weights that do not
  // fit it.
  static absl::StatusOr<LocalOptimizer> Create(const v1::JobDefinition& job,
                                               std::unique_ptr<kernels::Backend> backend,
                                               std::vector<std::vector<float>> weights);
  static absl::StatusOr<LocalOptimizer> Create(const kaon::JobDefinition& job,
                                               std::unique_ptr<kernels::Backend> backend,
                                               std::vector<std::vector<float>> weights);

  // INVALID_ARGUMENT if a step may not have these multipliers.
  absl::Status CheckMultipliers(const job::RateMultipliers& multipliers) const;
  // Runs one step with the contributions of the ranks that take part, one or more, in rank order.
  // Their steps and multipliers must be equal (CHECK). A skipped step changes only the step number
  // and the loss scale.
  kaon::StepRecord Step(absl::Span<const StepContribution> contributions);

  uint64_t step() const { return step_; }
  // Returns the loss scale of the next step.
  double loss_scale() const { return record_.decision().next_loss_scale(); }
  // Copies the fp32 masters by parameter id.
  std::vector<std::vector<float>> weights() const;
  // Returns the Newton-Schulz calls of each parameter since creation.
  const std::vector<uint64_t>& newton_schulz_calls() const { return newton_schulz_calls_; }

 private:
  struct Parameter {
    std::vector<uint64_t> shape;
    // Index of the parameter's group; -1 if frozen.
    int group = -1;
    kernels::RuleConfig rule;
    kernels::Tensor weights;
    kernels::Tensor sum;
    std::unique_ptr<kernels::Accumulation> accumulation;
    std::vector<kernels::Tensor> state;
    int64_t updates = 0;
    // Same values as in kernels::UpdateResult.
    uint64_t weights_digest = 0;
    uint64_t slots_digest = 0;
    uint32_t largest_weight_bits = 0;
    // No worker has a gradient in the current step.
    bool missing = false;
  };

  LocalOptimizer() = default;

  absl::Status AddParameter(int id, const std::vector<float>& weights);
  v1::StepPlan PlanOf(absl::Span<const StepContribution> contributions) const;
  // Sums the gradients of all parameters and returns their facts.
  v1::Prepared Fold(const v1::StepPlan& plan, absl::Span<const StepContribution> contributions);
  v1::ParameterSums FoldParameter(const v1::StepBody& step, uint32_t id,
                                  absl::Span<const StepContribution> contributions,
                                  v1::Prepared& prepared);
  void Apply(const v1::StepRecord& record);
  // Digests the present weights, optimizer state and update counters.
  uint64_t StateDigest() const;

  v1::RegisterBody registration_;
  job::NormUse norm_use_;
  // Outlives all tensors below.
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<Parameter> parameters_;
  // Target of an update, as large as the largest parameter: the old weights stay if it must not be
  // applied ([T10]).
  kernels::Tensor next_;
  std::vector<uint64_t> newton_schulz_calls_;
  uint64_t step_ = 0;
  // Record of the newest step, or of the registration.
  v1::StepRecord record_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_
