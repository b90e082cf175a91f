// What a run reports: per step and at the end, as text for people and as JSON for programs.
// Plain values and pure functions; any thread.
#ifndef KAON_CLIENT_TRAIN_SUMMARY_H_
#define KAON_CLIENT_TRAIN_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/kaon/client.h"

namespace kaon::train {

// Where the time of the reporting worker went.
struct PhaseSeconds {
  // Gradient, rounding included.
  double compute = 0;
  double push = 0;
  // From the last accepted gradient to the decision.
  double decide = 0;
  double pull = 0;

  double total() const { return compute + push + decide + pull; }
};

struct StepReport {
  kaon::StepRecord record;
  PhaseSeconds seconds;
  // Predicted characters, all workers.
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
  // Of this run; Muon parameters only. Counted by --local. A worker of the service may not ask the
  // shards: there it is the applied steps of the records it was told, each of which is one update
  // of every matrix. `kaonctl parameters` shows what the shards counted since the job began.
  uint64_t newton_schulz_updates = 0;
};

struct RunSummary {
  // Newest step of the job when the run started and ended.
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  uint64_t applied = 0;
  uint64_t skipped = 0;
  // Stopped by a signal before its last step.
  bool stopped = false;
  double validation_loss = 0;
  double bigram_loss = 0;
  double fivegram_loss = 0;
  uint64_t weights_digest = 0;
  std::vector<ParameterSummary> parameters;
  // Wall time of training, validation and baselines left out.
  double seconds = 0;
  PhaseSeconds phases;
  uint64_t tokens = 0;
  // All workers of this process.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
  // Of both, through shared memory.
  uint64_t shm_bytes = 0;
};

// One line per report; a skipped step says why.
std::string FormatStep(const StepReport& report);

// The table at the end.
std::string FormatSummary(const RunSummary& summary);

// One line of --log-jsonl each. Values that are not finite become null.
std::string StepJson(const StepReport& report);
std::string SummaryJson(const RunSummary& summary);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_SUMMARY_H_
