#include "server/shard/snapshot/snapshot_tensors.h"

#include <utility>

#include "proto/failpoint.h"
#include "proto/status_macros.h"

namespace kaon::shard {

absl::Status SnapshotTensors::Read(const v1::CheckpointTensor& tensor, uint64_t offset,
                                   absl::Span<char> to) {
  if (file_ == nullptr || index_ != tensor.file()) {
    index_ = tensor.file();
    auto opened = directory_.files().Open(snapshot_.part.files(static_cast<int>(index_)));
    if (!opened.ok()) return SnapshotDirectory::OfState(snapshot_, opened.status());
    file_ = *std::move(opened);
  }
  // A file of the length in the .meta contains every byte of its tensors.
  KAON_RETURN_IF_ERROR(SnapshotDirectory::OfState(
      snapshot_, file_->Read(tensor.offset() + offset, to.size(), to.data()).status()));
  PassFailpoint(Failpoint::snapshot_tensor_read);
  return absl::OkStatus();
}

}  // namespace kaon::shard
