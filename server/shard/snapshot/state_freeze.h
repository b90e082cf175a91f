// The state of a shard right after one log entry, read while later entries are applied: a tensor
// that is not read yet is copied, within a budget, before it is overwritten, and beyond the budget
// the step waits for the reader. A StateFreeze is the reader's end, owned by whoever writes a
// snapshot or a checkpoint and used by one thread, which may be another than the step's; FreezeList
// is the step's end, owned by ShardCore. Neither knows of files.
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
#include "server/shard/agreement/agreement_snapshot.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class StateFreeze {
 public:
  // Gives up what was not read.
  ~StateFreeze();

  const AgreementSnapshot& facts() const { return facts_; }
  // Everything that does not depend on files: shard, position, counters of updates and digests.
  const v1::CheckpointPart& part() const { return part_; }
  // Of this shard, ordered by (parameter_id, role); without file and offset.
  const std::vector<v1::CheckpointTensor>& tensors() const { return tensors_; }
  // Of all tensors.
  uint64_t num_bytes() const { return num_bytes_; }

  // Bytes of a tensor, as checkpoint::StateBytes lays them out, from `offset` on. Tensors in any
  // order, each from its first byte to its last: it is given up once that was read. Pieces of up
  // to a MiB keep the step from waiting long. INVALID_ARGUMENT naming the tensor and both values
  // for any other range; CANCELLED once the shard has ended the freeze.
  absl::Status Read(uint32_t parameter_id, absl::string_view role, uint64_t offset,
                    absl::Span<char> to);

  // The step waits for this reader. Any thread.
  bool is_waited_for() const;

 private:
  friend class FreezeList;
  class Tensors;

  StateFreeze() = default;

  AgreementSnapshot facts_;
  v1::CheckpointPart part_;
  std::vector<v1::CheckpointTensor> tensors_;
  uint64_t num_bytes_ = 0;
  // Shared with the list, which may outlive the reader or be outlived by it.
  std::shared_ptr<Tensors> shared_;
};

class FreezeList {
 public:
  // Copies that one freeze may hold, by default.
  static constexpr uint64_t kCopyBytes = uint64_t{64} << 20;

  FreezeList();
  // EndAll.
  ~FreezeList();

  // The state as it is now, weights included: FAILED_PRECONDITION before they are loaded. A
  // parameter of more than `copy_bytes` is read to its end before it is written again. Both memory
  // and registration must be those of the other.
  absl::StatusOr<std::unique_ptr<StateFreeze>> Add(AgreementSnapshot facts,
                                                   const ParameterStore& store,
                                                   const ParameterPublisher& publisher,
                                                   uint64_t copy_bytes = kCopyBytes);

  // To be called before the slots of the parameter are written, and `weights`, which is one of its
  // buffers. May wait for readers.
  void BeforeWrite(uint32_t parameter_id, absl::Span<const float> weights);

  // Some reader has not read all.
  bool IsRead() const;

  // Readers get CANCELLED from now on: the memory goes.
  void EndAll();

 private:
  std::vector<std::shared_ptr<StateFreeze::Tensors>> live_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_STATE_FREEZE_H_
