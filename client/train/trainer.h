// Runs the training: one thread per worker of this process. Each thread computes gradients of its
// slice of every batch and exchanges them through its TrainingSession; one thread reports. The
// sessions decide whether there are servers. Call RunTraining once per process or test, on one
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

// Reads the corpus; sets the vocabulary of options.model.
absl::StatusOr<TrainingText> ReadTrainingText(const TrainOptions& options);

struct TrainingRun {
  const TrainOptions& options;
  const TrainingText& text;
  // Called on each worker's own thread.
  std::function<absl::StatusOr<std::unique_ptr<TrainingSession>>(uint32_t rank)> make_session;
  // Returns the Newton-Schulz calls by parameter id. If it is not set, the applied steps count
  // (ParameterSummary::newton_schulz_updates).
  std::function<std::vector<uint64_t>()> newton_schulz_calls;
  StopGate& gate;
  // Receives progress lines.
  std::ostream& out;
};

// Trains up to options.steps, or until the gate closes. The first failure of a worker fails the
// run.
absl::StatusOr<RunSummary> RunTraining(const TrainingRun& run);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TRAINER_H_
