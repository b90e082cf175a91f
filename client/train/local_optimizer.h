// What coordinator and shards do with a step, in one place and without them: fold the workers'
// gradients in rank order, decide, step every parameter by its route. Uses the servers' kernels in
// the servers' order, so that the weights are theirs bit for bit; the independent path the service
// is checked against. Not thread-safe: owned by one LocalCluster or test.
#ifndef KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_
#define KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/kaon/client.h"
#include "client/train/training_session.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/backend.h"

namespace kaon::train {

class LocalOptimizer {
 public:
  // INVALID_ARGUMENT for a job that a coordinator would refuse, or weights that do not fit it.
  static absl::StatusOr<LocalOptimizer> Create(const kaon::JobDefinition& job,
                                               std::unique_ptr<kernels::Backend> backend,
                                               std::vector<std::vector<float>> weights);

  // One step with the contributions of ranks 0 .. n-1, in that order; their steps and multipliers
  // are equal (CHECK). A non-finite gradient skips the step: nothing changes but the step number.
  kaon::StepRecord Step(absl::Span<const StepContribution> contributions);

  uint64_t step() const { return step_; }
  // fp32 masters by parameter id.
  const std::vector<std::vector<float>>& weights() const { return weights_; }
  // Newton-Schulz calls of each parameter since creation.
  const std::vector<uint64_t>& newton_schulz_calls() const { return newton_schulz_calls_; }

 private:
  struct Parameter {
    std::string name;
    std::vector<uint64_t> shape;
    // Index into job_.groups(), -1 when frozen.
    int group = -1;
    kernels::RuleConfig rule;
    std::vector<std::vector<std::byte>> state;
    int64_t updates = 0;
  };

  LocalOptimizer() = default;

  // Sums of all parameters into sums_; the reason to skip the step, if there is one.
  std::optional<std::string> Fold(absl::Span<const StepContribution> contributions);
  void Apply(double multiplier, const std::vector<double>& clip_factors);

  v1::JobDefinition job_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<Parameter> parameters_;
  std::vector<bool> exempt_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> sums_;
  std::vector<double> sum_squares_;
  std::vector<uint64_t> newton_schulz_calls_;
  uint64_t step_ = 0;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_LOCAL_OPTIMIZER_H_
