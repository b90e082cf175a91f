#include "server/shard/snapshot/directory_claim.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "proto/text.h"
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

}  // namespace kaon::shard
