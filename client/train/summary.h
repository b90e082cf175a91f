// Reports of a run, per step and at the end: as text for people and as JSON for programs. Plain
// values and pure functions; any thread.
#ifndef KAON_CLIENT_TRAIN_SUMMARY_H_
#define KAON_CLIENT_TRAIN_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/kaon/client.h"

namespace kaon::train {

// Time that the reporting worker spent in each phase.
struct PhaseSeconds {
  // Gradient, including rounding.
  double compute = 0;
  double push = 0;
  // Time from the last accepted gradient to the decision.
  double decide = 0;
  double pull = 0;

  double total() const { return compute + push + decide + pull; }
};

struct StepReport {
  kaon::StepRecord record;
  PhaseSeconds seconds;
  // Characters predicted by all workers.
  uint64_t tokens = 0;
  // Payload of the reporting worker.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
};

struct ParameterSummary {
  std::string name;
  std::vector<uint64_t> shape;
  std::string group;
  // The routing rule that matched.
  std::string reason;
  // Applied steps of this run.
  uint64_t updates = 0;
  bool orthogonalized = false;
  // Newton-Schulz updates of this run, for Muon parameters only. --local counts the calls. A worker
  // of the service may not ask the shards. It uses the applied steps of its records instead: each
  // is one update of every matrix. `kaonctl parameters` shows the shards' counts since the job
  // began.
  uint64_t newton_schulz_updates = 0;
};

struct RunSummary {
  // Newest step of the job when the run started and ended.
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  uint64_t applied = 0;
  uint64_t skipped = 0;
  // A signal stopped the run before its last step.
  bool stopped = false;
  double validation_loss = 0;
  double bigram_loss = 0;
  double fivegram_loss = 0;
  uint64_t weights_digest = 0;
  std::vector<ParameterSummary> parameters;
  // Wall time of training, without validation and baselines.
  double seconds = 0;
  PhaseSeconds phases;
  uint64_t tokens = 0;
  // Payload of all workers of this process.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
  // Bytes of both that passed through shared memory.
  uint64_t shm_bytes = 0;
};

// Returns one line; for a skipped step it says why. Leaves out norms that were not computed.
std::string FormatStep(const StepReport& report);

// Returns the table at the end.
std::string FormatSummary(const RunSummary& summary);

// Each returns one line of --log-jsonl. Values that are not finite become null.
std::string StepJson(const StepReport& report);
std::string SummaryJson(const RunSummary& summary);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_SUMMARY_H_
