// What coordinator and shards do with a step, in one place and without them: fold the workers'
// gradients in rank order, decide, step every parameter by its route. Uses the servers' kernels in
// the servers' order and the job's own decisions and rates, so that the weights are theirs bit for
// bit; the path without servers that the service is checked against. Not thread-safe: owned by one
// LocalCluster or test.
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
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"

namespace kaon::train {

class LocalOptimizer {
 public:
  // INVALID_ARGUMENT for a job that a coordinator would refuse, or weights that do not fit it.
  static absl::StatusOr<LocalOptimizer> Create(const v1::JobDefinition& job,
                                               std::unique_ptr<kernels::Backend> backend,
                                               std::vector<std::vector<float>> weights);
  static absl::StatusOr<LocalOptimizer> Create(const kaon::JobDefinition& job,
                                               std::unique_ptr<kernels::Backend> backend,
                                               std::vector<std::vector<float>> weights);

  // One step with the contributions of those that take part, in rank order, at least one; their
  // steps and multipliers are equal (CHECK). A step that is skipped changes nothing but the step
  // number and the loss scale.
  kaon::StepRecord Step(absl::Span<const StepContribution> contributions);

  uint64_t step() const { return step_; }
  // Of the next step.
  double loss_scale() const { return record_.decision().next_loss_scale(); }
  // fp32 masters by parameter id.
  const std::vector<std::vector<float>>& weights() const { return weights_; }
  // Newton-Schulz calls of each parameter since creation.
  const std::vector<uint64_t>& newton_schulz_calls() const { return newton_schulz_calls_; }

 private:
  struct Parameter {
    std::vector<uint64_t> shape;
    // Index of its group, -1 when frozen.
    int group = -1;
    kernels::RuleConfig rule;
    std::vector<std::vector<std::byte>> state;
    int64_t updates = 0;
    // As kernels::UpdateResult has them.
    uint64_t weights_digest = 0;
    uint64_t slots_digest = 0;
    uint32_t largest_weight_bits = 0;
    // Of the step under way.
    bool missing = false;
  };

  LocalOptimizer() = default;

  absl::Status AddParameter(int id, size_t num_weights);
  v1::StepPlan PlanOf(absl::Span<const StepContribution> contributions) const;
  // Sums of all parameters into sums_, and their facts.
  v1::Prepared Fold(const v1::StepPlan& plan, absl::Span<const StepContribution> contributions);
  v1::ParameterSums FoldParameter(const v1::StepBody& step, uint32_t id,
                                  absl::Span<const StepContribution> contributions,
                                  v1::Prepared& prepared);
  void Apply(const v1::StepRecord& record);
  // Of weights, optimizer state and update counters as they are.
  uint64_t StateDigest() const;

  v1::RegisterBody registration_;
  job::NormUse norm_use_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> weights_;
  // Where an update writes: the old weights stay if it must not be applied ([T10]).
  std::vector<float> next_;
  std::vector<std::vector<float>> sums_;
  std::vector<uint64_t> newton_schulz_calls_;
  uint64_t step_ = 0;
  // Of the newest step, or of the registration.
  v1::StepRecord record_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_
