#include "server/journal/journal_start.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/disk/remove_if_there.h"
#include "server/journal/frame.h"
#include "server/journal/identity_file.h"

namespace kaon::journal {

namespace {

constexpr char kTemporaryFile[] = "start.tmp";

}  // namespace

absl::StatusOr<JournalStart> ReadStart(disk::Directory& directory, uint64_t directory_hash) {
  const absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kStartFile);
  if (absl::IsNotFound(file.status())) return JournalStart();
  if (!file.ok()) return file.status();
  // Read one byte more than the file may have, to detect a longer file.
  char buffer[kSectorBytes + 1];
  KAON_ASSIGN_OR_RETURN(const size_t size, (*file)->Read(0, sizeof(buffer), buffer));
  const absl::StatusOr<Frame> frame = DecodeFrame(absl::string_view(buffer, size));
  if (!frame.ok()) {
    return absl::Status(frame.status().code(),
                        absl::StrCat((*file)->path(), ": ", frame.status().message()));
  }
  const FrameHeader& header = frame->header;
  if (header.type != FrameType::kStart || header.directory != directory_hash) {
    return absl::DataLossError(
        absl::StrCat((*file)->path(), " is of directory ", absl::Hex(header.directory),
                     " and type ", static_cast<uint16_t>(header.type), ", expecting ",
                     absl::Hex(directory_hash), " as ", directory.path(), "/", kIdentityFile,
                     " has it, and ", static_cast<uint16_t>(FrameType::kStart)));
  }
  return JournalStart{header.sequence, header.chain, header.position, header.generation != 0};
}

absl::Status WriteStart(disk::Directory& directory, uint64_t directory_hash,
                        const JournalStart& start) {
  // A crash or a full disk may have left it.
  KAON_RETURN_IF_ERROR(disk::RemoveIfThere(directory, kTemporaryFile));
  FrameHeader header;
  header.type = FrameType::kStart;
  header.directory = directory_hash;
  header.sequence = start.sequence;
  header.chain = start.chain;
  header.position = start.position;
  header.generation = start.history ? 1 : 0;
  const EncodedHeader encoded = EncodeFrameHeader(header);
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::File> file, directory.Create(kTemporaryFile));
  KAON_RETURN_IF_ERROR(
      file->Write(0, {absl::string_view(encoded.data(), encoded.size()), FramePadding(0)}));
  PassFailpoint(Failpoint::journal_start_written);
  KAON_RETURN_IF_ERROR(file->Sync());
  PassFailpoint(Failpoint::journal_start_synced);
  KAON_RETURN_IF_ERROR(directory.Rename(kTemporaryFile, kStartFile));
  PassFailpoint(Failpoint::journal_start_renamed);
  const absl::Status synced = directory.Sync();
  // It is unknown now which of the two files a crash would leave.
  if (absl::IsResourceExhausted(synced)) return absl::DataLossError(synced.message());
  return synced;
}

}  // namespace kaon::journal
