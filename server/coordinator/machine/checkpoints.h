// The checkpoints that a coordinator takes, one at a time: when one starts, of which entry, and how
// it ends. The shards write it while steps go on; nothing here waits for them. Owned by
// StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINTS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/checkpoint/manifest.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/checkpoint_run.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/step_machine_options.h"

namespace kaon::coordinator {

class Checkpoints {
 public:
  explicit Checkpoints(const StepMachineOptions& options);

  // FAILED_PRECONDITION without a checkpoint directory or loaded weights; ALREADY_EXISTS while
  // another checkpoint is written.
  absl::Status Check(const JobState& job) const;
  // Returns whether a periodic checkpoint is to start now that the newest entry is applied.
  bool IsDue(const JobState& job) const;
  // Starts a checkpoint of the newest decided entry. An empty `id` stands for
  // JOB-TIMELINE-POSITION. A periodic checkpoint has no `call`. Every shard must be sent the
  // decision of the newest entry, then Ask's message, then the next decision: so all shards freeze
  // the same state.
  void Start(const std::string& id, std::optional<CallId> call, const JobState& job);
  // Returns what to send to `shard` now and at each heartbeat; nothing once its part is durable.
  std::optional<v1::TakeCheckpoint> Ask(int shard) const;

  // Takes the report of a shard. With the last part, asks for the manifest to be written while the
  // checkpoints `in_use` stay on disk.
  Actions OnReport(int shard, const v1::CheckpointReport& report,
                   std::vector<checkpoint::RestoredCheckpoint> in_use);
  // Takes the answer to a FinishCheckpoint with parts.
  Actions OnFinished(uint64_t attempt, const absl::StatusOr<v1::CheckpointSummary>& summary);
  // Abandons the checkpoint once no shard has made progress for `checkpoint_patience`.
  Actions Tick(absl::Time now);
  // Ends the checkpoint with `status`, unless every part is durable: then the shards no longer
  // matter.
  Actions Abandon(const absl::Status& status);
  // Forgets the call; the checkpoint is taken all the same.
  void Cancel(CallId call);

 private:
  // `is_there`: the same checkpoint exists already, so nothing failed.
  Actions End(const absl::Status& status, bool is_there);

  const int num_shards_;
  const bool has_directory_;
  // Train steps between two periodic checkpoints; 0 = never.
  const uint64_t every_steps_;
  const absl::Duration patience_;
  std::mt19937_64 random_;
  std::optional<CheckpointRun> run_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_CHECKPOINTS_H_
