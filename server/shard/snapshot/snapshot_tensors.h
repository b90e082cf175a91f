// Reads the tensors of one snapshot and checks every byte. Within a file, read tensors in file
// order. The caller owns it; one thread.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_TENSORS_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_TENSORS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/safetensors/checked_file.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/snapshot_file.h"

namespace kaon::shard {

class SnapshotTensors {
 public:
  // Both outlive the reader. `directory` loaded `snapshot`.
  SnapshotTensors(SnapshotDirectory& directory, const Snapshot& snapshot)
      : directory_(directory), snapshot_(snapshot) {}

  // Reads the bytes of `tensor` from `offset` on; `to` ends within it. Returns DATA_LOSS naming
  // file and fragment.
  absl::Status Read(const v1::CheckpointTensor& tensor, uint64_t offset, absl::Span<char> to);

 private:
  SnapshotDirectory& directory_;
  const Snapshot& snapshot_;
  std::unique_ptr<checkpoint::CheckedFile> file_;
  uint32_t index_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_TENSORS_H_
