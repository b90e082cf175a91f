// One worker's side of a job, with or without servers: the training loop is written once, against
// this. A session belongs to one worker thread; sessions of different ranks may be used at the same
// time.
#ifndef KAON_CLIENT_TRAIN_TRAINING_SESSION_H_
#define KAON_CLIENT_TRAIN_TRAINING_SESSION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/kaon/client.h"
#include "client/train/tensor_buffers.h"

namespace kaon::train {

// One worker's part of one step.
struct StepContribution {
  uint64_t step = 0;
  double token_weight = 1;
  double learning_rate_multiplier = 1;
  std::optional<double> loss;
  // Multiplied by the session's loss scale. Borrowed until the step is decided.
  const TensorBuffers* gradients = nullptr;
  // Parameters this worker has no gradient for; theirs is not read.
  std::vector<uint32_t> missing_parameters;
  // Without servers: false leaves this worker out of the step. At least one takes part.
  bool takes_part = true;
};

struct StepOutcome {
  kaon::StepRecord record;
  // Until the last gradient was accepted, and from there to the decision.
  double push_seconds = 0;
  double decide_seconds = 0;
};

// Payload bytes since the session started.
struct TransferredBytes {
  uint64_t pushed = 0;
  uint64_t pulled = 0;
  // Of both, through shared memory.
  uint64_t shared = 0;
};

class TrainingSession {
 public:
  virtual ~TrainingSession() = default;

  // Joins the job, with `initial_weights` where it has none yet; returns its newest step (0 =
  // initial weights).
  virtual absl::StatusOr<uint64_t> Start(
      const std::vector<std::vector<float>>& initial_weights) = 0;

  // Gives this worker's part of a step and waits for the decision.
  // CANCELLED when the run was stopped or another worker of this process failed.
  virtual absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) = 0;

  // Fills `weights` (allocated by the caller; its dtype is the wire dtype) with version `step`.
  virtual absl::Status Pull(uint64_t step, TensorBuffers* weights) = 0;

  // What the gradients of the next step are to be multiplied by.
  virtual double loss_scale() const = 0;

  // The step to go on from, once after the job went back to another one: what failed meanwhile is
  // to be done again from there.
  virtual std::optional<uint64_t> TakeRewind() { return std::nullopt; }

  virtual TransferredBytes transferred() const = 0;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TRAINING_SESSION_H_
