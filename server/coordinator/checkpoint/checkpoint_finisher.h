// Ends checkpoint attempts in the checkpoint directory. Writes the manifest once all shards have
// written their parts, and removes the files of failed attempts. Owned by CheckpointKeeper, whose
// thread calls it, or by the simulator, which has one thread.
#ifndef KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_FINISHER_H_
#define KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_FINISHER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/machine/actions.h"

namespace kaon::coordinator {

class CheckpointFinisher {
 public:
  using Done = std::function<void(const absl::StatusOr<v1::CheckpointSummary>&)>;

  // Call it before the coordinator takes its first ballot. `directory` must outlive this object.
  explicit CheckpointFinisher(checkpoint::CheckpointDirectory& directory);

  // Ends the attempt in `finish`.
  //
  // - With parts: writes the manifest and calls `done`. If `finish` says so, also removes all but
  //   the `keep` newest good checkpoints. No other attempt may begin before `done` runs.
  // - Without parts: the attempt was abandoned. Removes its files and does not call `done`.
  //
  // Also removes files of other coordinators' attempts, once none of those attempts can still run.
  void Finish(const FinishCheckpoint& finish, uint64_t keep, const Done& done);

 private:
  using Attempts = std::vector<checkpoint::CheckpointAttempt>;

  // Removes the files of those attempts in `seen` that belong to `job`. No coordinator and no shard
  // may still work on them. Skips other jobs: they belong to another cluster, whose ballots this
  // cluster does not order.
  void GiveUp(const Attempts& seen, const std::string& job);

  checkpoint::CheckpointDirectory& directory_;
  // Unfinished attempts that existed before this coordinator began its newest attempt. The flag
  // says whether they also existed before this coordinator took its first ballot.
  Attempts leftovers_;
  bool before_first_ballot_ = true;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_FINISHER_H_
