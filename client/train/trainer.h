// The training run: a thread per worker of this process, each computing gradients of its slice of
// every batch and exchanging them through its TrainingSession; one of them reports. Whether there
// are servers is the sessions' matter. RunTraining is called once per process or test, from one
// thread.
#ifndef KAON_CLIENT_TRAIN_TRAINER_H_
#define KAON_CLIENT_TRAIN_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "absl/status/statusor.h"
#include "client/train/corpus.h"
#include "client/train/stop_gate.h"
#include "client/train/summary.h"
#include "client/train/train_options.h"
#include "client/train/training_session.h"

namespace kaon::train {

// The corpus as the model sees it. Immutable; shared by all workers.
struct TrainingText {
  ModelShape model;
  TokenText training;
  TokenText validation;
};

// Reads the corpus; options.model with its vocabulary filled in.
absl::StatusOr<TrainingText> ReadTrainingText(const TrainOptions& options);

struct TrainingRun {
  const TrainOptions& options;
  const TrainingText& text;
  // Called on each worker's own thread.
  std::function<absl::StatusOr<std::unique_ptr<TrainingSession>>(uint32_t rank)> make_session;
  // Newton-Schulz calls by parameter id, when they can be counted here; otherwise they are the
  // applied steps (ParameterSummary::newton_schulz_updates).
  std::function<std::vector<uint64_t>()> newton_schulz_calls;
  StopGate& gate;
  // Progress.
  std::ostream& out;
};

// Trains up to options.steps, or the step at which the gate closes. The first worker's failure
// fails the run.
absl::StatusOr<RunSummary> RunTraining(const TrainingRun& run);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TRAINER_H_
