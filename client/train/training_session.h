// Interface of one worker's side of a job, with or without servers, so that there is one training
// loop. A session belongs to one worker thread; sessions of different ranks may be used
// concurrently.
#ifndef KAON_CLIENT_TRAIN_TRAINING_SESSION_H_
#define KAON_CLIENT_TRAIN_TRAINING_SESSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
  // Further factor on the learning rate of single groups, by name.
  std::map<std::string, double> group_multipliers = {};
  std::optional<double> loss;
  // Gradients times the session's loss scale. Not owned; must stay valid until the step is decided.
  const TensorBuffers* gradients = nullptr;
  // Parameters for which this worker has no gradient; their buffers are not read.
  std::vector<uint32_t> missing_parameters;
  // Only without servers: false leaves this worker out of the step. At least one worker must take
  // part.
  bool takes_part = true;
};

struct StepOutcome {
  kaon::StepRecord record;
  // Time until the last gradient was accepted, and from there to the decision.
  double push_seconds = 0;
  double decide_seconds = 0;
};

// Payload bytes since the session started.
struct TransferredBytes {
  uint64_t pushed = 0;
  uint64_t pulled = 0;
  // Bytes of both that passed through shared memory.
  uint64_t shared = 0;
};

class TrainingSession {
 public:
  virtual ~TrainingSession() = default;

  // Joins the job and loads `initial_weights` if it has none. Returns the job's newest step (0:
  // initial weights).
  virtual absl::StatusOr<uint64_t> Start(
      const std::vector<std::vector<float>>& initial_weights) = 0;

  // Sends this worker's part of a step and waits for the decision. Returns CANCELLED if the run was
  // stopped or another worker of this process failed.
  virtual absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) = 0;

  // Fills `weights` with version `step`. The caller allocates `weights`; its dtype is the wire
  // dtype.
  virtual absl::Status Pull(uint64_t step, TensorBuffers* weights) = 0;

  // Returns the factor to multiply the gradients of the next step by.
  virtual double loss_scale() const = 0;

  // Returns the step to continue from, once after each rewind of the job. Repeat from there what
  // failed meanwhile.
  virtual std::optional<uint64_t> TakeRewind() { return std::nullopt; }

  virtual TransferredBytes transferred() const = 0;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TRAINING_SESSION_H_
