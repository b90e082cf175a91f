// The state of a shard right after one log entry, read while later entries are applied. A tensor
// not read yet is copied in the backend's memory before it is overwritten, within a budget. A disk
// keeps it until the second step after the freeze. Beyond the budget, or without memory
// for the copy, the step waits for the reader. StateFreeze is the reader's end: its owner writes a
// snapshot or a checkpoint on one thread, which may differ from the step thread. FreezeList is the
// step's end, owned by AppliedState. Neither knows files.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_STATE_FREEZE_H_
#define KAON_SERVER_SHARD_SNAPSHOT_STATE_FREEZE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/shard/agreement/agreement_snapshot.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class StateFreeze {
 public:
  // Releases the tensors not read.
  ~StateFreeze();

  const AgreementSnapshot& facts() const { return facts_; }
  // Everything independent of files: shard, position, update counters and digests.
  const v1::CheckpointPart& part() const { return part_; }
  // Tensors of this shard, ordered by (parameter_id, role), without file and offset.
  const std::vector<v1::CheckpointTensor>& tensors() const { return tensors_; }
  // Bytes of all tensors.
  uint64_t num_bytes() const { return num_bytes_; }

  // Reads bytes of a tensor from `offset` on, laid out as in checkpoint::StateBytes. Read tensors
  // in any order, each from first to last byte; the last byte releases it. Pieces up to 1 MiB keep
  // the step from waiting long. Returns INVALID_ARGUMENT naming the tensor and both values for any
  // other range. Returns CANCELLED once the shard has ended the freeze.
  absl::Status Read(uint32_t parameter_id, absl::string_view role, uint64_t offset,
                    absl::Span<char> to);

  // Returns true while the step waits for this reader. Any thread.
  bool is_waited_for() const;

 private:
  friend class FreezeList;
  class Tensors;

  StateFreeze() = default;

  AgreementSnapshot facts_;
  v1::CheckpointPart part_;
  std::vector<v1::CheckpointTensor> tensors_;
  uint64_t num_bytes_ = 0;
  // Shared with the list; either may live longer.
  std::shared_ptr<Tensors> shared_;
};

class FreezeList {
 public:
  // Default limit of the copies that one freeze may hold, in bytes.
  static constexpr uint64_t kCopyBytes = uint64_t{64} << 20;

  FreezeList();
  // Calls EndAll.
  ~FreezeList();

  // Freezes the current state. Returns FAILED_PRECONDITION before weights are loaded. A parameter
  // larger than `copy_bytes` is read to its end before it is written again. `facts` and `store`
  // must have the same registration.
  absl::StatusOr<std::unique_ptr<StateFreeze>> Add(AgreementSnapshot facts,
                                                   const ParameterStore& store,
                                                   uint64_t copy_bytes = kCopyBytes);

  // Returns the state right after a deletion, which has no tensors.
  static std::unique_ptr<StateFreeze> OfNoJob(AgreementSnapshot facts, kernels::Backend& backend);

  // Call it before writing the parameter's slots, and `version` of its unit. May block until
  // readers have made room.
  void BeforeWrite(uint32_t parameter_id, int version);

  // Returns true while a reader has not finished.
  bool IsRead() const;

  // Ends all reads with CANCELLED, because the memory will be freed.
  void EndAll();

 private:
  // Returns a freeze without tensors, and its part without digests.
  static std::unique_ptr<StateFreeze> Begin(AgreementSnapshot facts, kernels::Backend& backend,
                                            uint64_t copy_bytes);

  std::vector<std::shared_ptr<StateFreeze::Tensors>> live_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_STATE_FREEZE_H_
