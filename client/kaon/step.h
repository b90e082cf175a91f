// One open step of a worker: its options, the gradients that it pushes, and its decision. The
// caller owns the tensors; keep each one valid and unmodified until the future of Finish has its
// result. Different threads may push different tensors. C++17, standard library only.
#ifndef KAON_CLIENT_KAON_STEP_H_
#define KAON_CLIENT_KAON_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kaon/future.h"
#include "kaon/step_record.h"
#include "kaon/tensor.h"

namespace kaon {

// Options of Worker::Begin; {step, num_tokens} sets the first two.
struct BeginOptions {
  // The job's applied step + 1.
  uint64_t step = 0;
  // Weight w of this worker in the mean over the ranks r (Step::Push), usually its token count.
  double token_weight = 1;
  // Contributions that this worker pushes for each parameter. The shard adds them and does not
  // average them: if the loss is a mean, divide each loss by this number.
  uint32_t micro_batches = 1;
  // Factor on each group's base learning rate. All workers must pass the same value. A rank that
  // differs from most ranks, or in a tie from rank 0, ends its step with INVALID_ARGUMENT.
  double learning_rate_multiplier = 1;
  // Further factor on the learning rate of single groups, by name; finite, >= 0. Such as
  // {{"scalars", 0.1}}; a group without one has 1. Must be alike on all workers, as above. An
  // unknown group ends the step with INVALID_ARGUMENT.
  std::map<std::string, double> group_multipliers = {};
  // W3C traceparent of the span in which the trainer makes the step, such as
  // 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01. If the coordinator exports traces, the
  // step's spans become a part of that one if it is sampled. Empty = the step has a trace of its
  // own.
  std::string traceparent = {};
};

// Options of Step::Finish; {loss} sets the first.
struct FinishOptions {
  std::optional<double> loss = std::nullopt;
  // Ids of the parameters without a gradient in this step; push all others. If other ranks push a
  // listed parameter, this rank counts as zeros: its weight stays in the mean. If every rank lists
  // it, ParameterGroup::missing_gradient decides: leave it alone, or step it with zeros.
  std::vector<uint32_t> missing_parameters = {};
};

class Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  // Queues a contribution g; `gradient` has the parameter's element count. For ranks r of
  // token_weight w_r and micro-batches m, a step uses
  //     gradient = sum_r w_r (sum_m g_rm) / (sum_r w_r) / loss_scale.
  // The future is ready once the shard has accepted all of g. If the step ends first, the future
  // has the step's error; DEADLINE_EXCEEDED if Finish is not called in time.
  // Fails at once with INVALID_ARGUMENT for an unknown parameter, a wrong element count or
  // micro-batch, or a contribution that was pushed before.
  Future<Done> Push(uint32_t parameter_id, TensorView gradient, uint32_t micro_batch = 0);
  Future<Done> Push(const std::string& parameter, TensorView gradient, uint32_t micro_batch = 0);

  // Declares that every gradient is queued, and waits for the decision. Errors: DEADLINE_EXCEEDED;
  // DATA_LOSS (the job stopped); ABORTED (another process took this rank).
  // INVALID_ARGUMENT: a gradient is neither pushed nor listed as missing. FAILED_PRECONDITION: the
  // step's timeline is over, and on_rewind was called.
  Future<StepRecord> Finish(FinishOptions options = {});

 private:
  friend class Worker;
  class Impl;
  explicit Step(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_STEP_H_
