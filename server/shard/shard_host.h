// Interface between a ShardCore and the program that it runs in: journal, directories, and threads
// for slow work. StepLoop implements it in production, ShardNode in the simulator, DrivenShard in
// tests. The host owns its core and drives it from one thread, the step thread.
#ifndef KAON_SERVER_SHARD_SHARD_HOST_H_
#define KAON_SERVER_SHARD_SHARD_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "server/disk/disk.h"
#include "server/journal/record.h"
#include "server/shard/restore_check.h"
#include "server/shard/snapshot/checkpoint_part.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/state_freeze.h"

namespace kaon::shard {

class ShardHost {
 public:
  using UseSnapshots = absl::FunctionRef<absl::Status(SnapshotDirectory& directory)>;

  virtual ~ShardHost() = default;

  // Any thread calls these two, perhaps inside an event of the core, but without a lock. The host
  // answers with an event of its own, never from inside the call.

  // Tells that one parameter of `generation` is folded while workers still push others. The host
  // answers with ShardCore::OnParameterFolded.
  virtual void OnParameterFolded(uint64_t generation, uint32_t parameter_id) = 0;
  // Tells that all of `generation` is folded. The host answers with ShardCore::OnFolded.
  virtual void OnFolded(uint64_t generation) = 0;

  // The step thread calls the next four inside an event, never during replay.

  // Appends a part of the gradient that the next PREPARE votes on, as Journal::AppendGradient does.
  // The values stay valid until OnDurable of that PREPARE, or until WithdrawGradients.
  virtual void AppendGradient(const journal::GradientSlice& slice) = 0;
  // Tells that no PREPARE follows the slices since the last one, as Journal::WithdrawGradients.
  virtual void WithdrawGradients() = 0;
  // Tells that an entry has taken effect, before its outputs exist. May call ShardCore::Freeze.
  virtual void OnApplied() = 0;
  // Tells, at most once, that the state is damaged: the core serves it no more. Not called for
  // ShardCoreOptions::data_loss.
  virtual void OnDataLoss(const std::string& why) = 0;

  // The step thread calls the next three inside an event, never during replay. The host starts the
  // work on any thread, and answers with an event of its own, never from inside the call.

  // Starts CheckCheckpoint. The host answers with ShardCore::OnRestoreChecked.
  virtual void CheckRestore(const RestoreCheck& check, uint64_t generation) = 0;
  // Starts CheckSnapshot. The host answers with ShardCore::OnRestoreChecked.
  virtual void CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) = 0;
  // Starts WriteCheckpointPart. The host answers with ShardCore::OnPartWritten.
  virtual void WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) = 0;

  // The step thread calls the last two inside an event or during replay.

  // Returns a new view of the checkpoint directory. FAILED_PRECONDITION: the shard has none.
  virtual absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() = 0;
  // Calls `use` with the snapshots of this shard and returns its status. INVALID_ARGUMENT outside
  // mode INTERVAL: no snapshot can be rolled back to.
  virtual absl::Status WithSnapshots(UseSnapshots use) = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_HOST_H_
