#include "server/shard/snapshot/directory_claim.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/written_by.h"
#include "server/config/durability.h"
#include "server/disk/device_error.h"
#include "server/disk/replace_file.h"

namespace kaon::shard {

namespace {

// Maximum size of the file in bytes. A processor's name has only dozens of characters.
constexpr size_t kMostBytes = 4096;

// The text is compared, never parsed.
std::string TextOf(const v1::CheckpointFile& present) {
  return absl::StrCat("kaon written_by 1\nbuild ", present.build(), "\nbackend ", present.backend(),
                      "\ndevice_class ", present.device_class(), "\n");
}

}  // namespace

absl::Status ClaimDirectory(disk::Directory& directory, const v1::CheckpointFile& present) {
  return disk::ReplaceFile(directory, kWrittenByFile, TextOf(present));
}

absl::StatusOr<bool> IsClaimed(disk::Directory& directory, const v1::CheckpointFile& present) {
  const std::string text = TextOf(present);
  absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kWrittenByFile);
  if (absl::IsNotFound(file.status())) return false;
  if (!file.ok()) return file.status();
  std::string said(kMostBytes, '\0');
  KAON_ASSIGN_OR_RETURN(const size_t size, (*file)->Read(0, said.size(), said.data()));
  said.resize(size);
  if (said == text) return true;
  return absl::FailedPreconditionError(
      absl::StrCat((*file)->path(), " says '", proto::Excerpt(said), "', this shard would write '",
                   proto::Excerpt(text),
                   "': later steps may differ in their last bits; --allow-other-build takes it"));
}

// Protocol.md section 3: "recorded, and resuming across a change needs an explicit flag".
absl::Status CheckBuild(SnapshotDirectory& directory, uint64_t position,
                        const v1::CheckpointFile& present) {
  const absl::StatusOr<Snapshot> snapshot = directory.Load(position);
  if (disk::IsDeviceError(snapshot.status())) return snapshot.status();
  if (!snapshot.ok()) return absl::OkStatus();
  const std::string what = absl::StrCat("data_dir ", directory.path());
  for (const v1::CheckpointFile& file : snapshot->part.files()) {
    KAON_RETURN_IF_ERROR(checkpoint::CheckSameBits(what, file, "this shard", present));
  }
  return absl::OkStatus();
}

// A journal is read in the mode that it was written in: modes differ in the votes that they write.
absl::Status CheckMode(SnapshotDirectory& directory, uint64_t position, v1::DurabilityMode mode,
                       uint32_t interval_steps) {
  const absl::StatusOr<Snapshot> snapshot = directory.Load(position);
  if (disk::IsDeviceError(snapshot.status())) return snapshot.status();
  if (!snapshot.ok()) return absl::OkStatus();
  const v1::ShardState& written = snapshot->facts.state;
  if ((written.interval_steps() > 0) == (interval_steps > 0)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("data_dir ", directory.path(), " was written with durability ",
                   config::DurabilityText(written.durability(), written.interval_steps()),
                   ", it is ", config::DurabilityText(mode, interval_steps),
                   " now; the way from one to the other is a checkpoint"));
}

}  // namespace kaon::shard
