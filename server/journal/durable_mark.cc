#include "server/journal/durable_mark.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "server/journal/frame.h"
#include "server/journal/identity_file.h"

namespace kaon::journal {

DurableMarkFile::DurableMarkFile(std::unique_ptr<disk::File> file, uint64_t directory_hash)
    : file_(std::move(file)), directory_hash_(directory_hash) {}

absl::StatusOr<DurableMarkFile> DurableMarkFile::Open(disk::Directory& directory,
                                                      uint64_t directory_hash) {
  absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kDurableMarkFile);
  if (file.status().code() == absl::StatusCode::kNotFound)
    file = directory.Create(kDurableMarkFile);
  if (!file.ok()) return file.status();
  // Make the one sector durable first. Otherwise a full disk could leave a part of a header, which
  // would look like damage and not like a crash.
  KAON_ASSIGN_OR_RETURN(const uint64_t size, (*file)->Size());
  if (size < kSectorBytes) {
    const std::string zeros(kSectorBytes, '\0');
    KAON_RETURN_IF_ERROR((*file)->Write(0, {zeros}));
    KAON_RETURN_IF_ERROR((*file)->Sync());
  }
  return DurableMarkFile(std::move(*file), directory_hash);
}

absl::StatusOr<std::optional<DurableMark>> DurableMarkFile::Read(disk::Directory& directory,
                                                                 uint64_t directory_hash) {
  const absl::StatusOr<std::unique_ptr<disk::File>> file = directory.Open(kDurableMarkFile);
  if (file.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
  if (!file.ok()) return file.status();
  // Read one byte more than the file may have, to detect a longer file.
  char buffer[kSectorBytes + 1];
  KAON_ASSIGN_OR_RETURN(const size_t size, (*file)->Read(0, sizeof(buffer), buffer));
  const absl::string_view bytes(buffer, size);
  if (size <= kSectorBytes && MayBeUnwritten(bytes)) return std::nullopt;
  const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  if (!frame.ok()) {
    return absl::Status(frame.status().code(),
                        absl::StrCat((*file)->path(), ": ", frame.status().message()));
  }
  if (frame->header.type != FrameType::kDurable || frame->header.directory != directory_hash) {
    return absl::DataLossError(
        absl::StrCat((*file)->path(), " is of directory ", absl::Hex(frame->header.directory),
                     " and type ", static_cast<uint16_t>(frame->header.type), ", expecting ",
                     absl::Hex(directory_hash), " as ", directory.path(), "/", kIdentityFile,
                     " has it, and ", static_cast<uint16_t>(FrameType::kDurable)));
  }
  return DurableMark{frame->header.sequence, frame->header.chain};
}

absl::Status DurableMarkFile::Write(const DurableMark& mark) {
  FrameHeader header;
  header.type = FrameType::kDurable;
  header.directory = directory_hash_;
  header.sequence = mark.sequence;
  header.durable_sequence = mark.sequence;
  header.chain = mark.header_crc;
  const EncodedHeader encoded = EncodeFrameHeader(header);
  return file_->Write(0, {absl::string_view(encoded.data(), encoded.size()), FramePadding(0)});
}

}  // namespace kaon::journal
