// What a coordinator does in the directory of checkpoints once the shards have written theirs, or
// have not: the manifest, and what attempts leave. Owned by CheckpointKeeper, whose thread calls
// it, or by the simulator, which is one thread.
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

  // Before the coordinator takes its first ballot. `directory` outlives the result.
  explicit CheckpointFinisher(checkpoint::CheckpointDirectory& directory);

  // Writes the manifest, and removes those beyond the `keep` newest good ones if it says so; or
  // removes what is left of an attempt that was given up. Calls `done` for the former alone; until
  // then no other attempt is begun. What attempts of other coordinators left is removed here too,
  // once none of them can be running any more.
  void Finish(const FinishCheckpoint& finish, uint64_t keep, const Done& done);

 private:
  using Attempts = std::vector<checkpoint::CheckpointAttempt>;

  // Removes the files of those of `job`, which no coordinator and no shard works on any more.
  // Others are another cluster's, which no ballot of this one orders.
  void GiveUp(const Attempts& seen, const std::string& job);

  checkpoint::CheckpointDirectory& directory_;
  // Unfinished attempts that were there before this coordinator began its newest one, and whether
  // that was before it took its first ballot.
  Attempts leftovers_;
  bool before_first_ballot_ = true;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_FINISHER_H_
