#include "server/shard/snapshot_restore.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checked_file.h"

namespace kaon::shard {

namespace {

// Reads tensors, every byte of them checked; those of one file one after the other.
class TensorReader {
 public:
  TensorReader(SnapshotDirectory& directory, const Snapshot& snapshot)
      : directory_(directory), snapshot_(snapshot) {}

  absl::Status Read(const v1::CheckpointTensor& tensor, absl::Span<char> to) {
    if (file_ == nullptr || index_ != tensor.file()) {
      index_ = tensor.file();
      KAON_ASSIGN_OR_RETURN(
          file_, directory_.files().Open(snapshot_.part.files(static_cast<int>(index_))));
    }
    // A file that is as long as the .meta says has every byte of its tensors.
    KAON_RETURN_IF_ERROR(file_->Read(tensor.offset(), to.size(), to.data()).status());
    PassFailpoint(Failpoint::snapshot_tensor_read);
    return absl::OkStatus();
  }

 private:
  SnapshotDirectory& directory_;
  const Snapshot& snapshot_;
  std::unique_ptr<checkpoint::CheckedFile> file_;
  uint32_t index_ = 0;
};

absl::Status RestoreOne(SnapshotDirectory& directory, uint64_t position,
                        const RestoreShard& restore, RestoredSnapshot& restored) {
  KAON_ASSIGN_OR_RETURN(const Snapshot snapshot, directory.Load(position));
  PassFailpoint(Failpoint::snapshot_found);
  TensorReader reader(directory, snapshot);
  KAON_RETURN_IF_ERROR(
      restore(snapshot, [&reader](const v1::CheckpointTensor& tensor, absl::Span<char> to) {
        return reader.Read(tensor, to);
      }));
  PassFailpoint(Failpoint::snapshot_read_back);
  restored.position = position;
  restored.step = snapshot.facts.state.applied_step();
  for (const v1::CheckpointFile& file : snapshot.part.files()) restored.bytes += file.size();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               const RestoreShard& restore) {
  RestoredSnapshot restored;
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, directory.List());
  for (const uint64_t position : positions) {
    const absl::Status status = RestoreOne(directory, position, restore, restored);
    if (absl::IsResourceExhausted(status)) return status;
    if (status.ok()) {
      directory.SetWhole(position);
      break;
    }
    restored.skipped.push_back(
        absl::StrCat(SnapshotDirectory::IdOf(position), " is not used: ", status.message()));
  }
  return restored;
}

}  // namespace kaon::shard
