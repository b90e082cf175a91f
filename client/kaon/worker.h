// A rank of a job that this process has claimed. Any threads may use a Worker concurrently; it has
// one open Step at a time. It stays valid after its Job and Client are destroyed, but every call
// fails. C++17, standard library only.
#ifndef KAON_CLIENT_KAON_WORKER_H_
#define KAON_CLIENT_KAON_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kaon/future.h"
#include "kaon/status.h"
#include "kaon/step.h"
#include "kaon/step_record.h"
#include "kaon/tensor.h"

namespace kaon {

class Worker {
 public:
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  ~Worker();

  // Loads version 0 of the weights. `weights`: one fp32 view for each parameter id, valid until the
  // future is ready. Call it on rank 0 of a job without weights; otherwise FAILED_PRECONDITION.
  // INVALID_ARGUMENT when a copy (ParameterSpec::tied_to) differs from its original.
  // You may retry a load that ended without a result. If the first one was decided after all, its
  // weights stay.
  Future<Done> LoadWeights(std::vector<TensorView> weights);

  // Opens a step. FAILED_PRECONDITION while another step is open, or when `step` is not the applied
  // step + 1; the error names both numbers.
  // You may retry a step that ended without a record, with other gradients and another token
  // weight. Earlier pushes are discarded. If the first try was decided after all, Finish returns
  // its record.
  Result<Step> Begin(const BeginOptions& options);

  // Runs a whole step: Begin, Push of every gradient, Finish with `loss`, and Pull of the step's
  // version into `weights`. Blocks until the weights are there. It pulls after a skipped step too,
  // whose record says why. `gradients` and `weights` have one view for each parameter id. An empty
  // view (TensorView()) stands for a parameter that has no gradient in this step or is frozen, or
  // that is not pulled. The caller owns the tensors; other threads must not use them before the
  // return. INVALID_ARGUMENT: the number of views or a target is wrong, or micro_batches is not 1.
  // Returns errors of Begin, Push, Finish and Job::Pull too. After an error the weights are
  // undefined and the step may have been decided: Refresh tells the applied step to Pull.
  Result<StepRecord> RunStep(const BeginOptions& options, const std::vector<TensorView>& gradients,
                             std::optional<double> loss,
                             const std::vector<MutableTensorView>& weights);

  // Multiply the next loss, and so every gradient, by this. Finish and Join update it; after
  // abandoning a step, Join again.
  double loss_scale() const;

  uint32_t rank() const;

 private:
  friend class Job;
  class Impl;
  explicit Worker(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_WORKER_H_
