#include "server/checkpoint/safetensors/checked_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"

namespace kaon::checkpoint {

CheckedFile::CheckedFile(std::unique_ptr<disk::File> file, FileSums sums)
    : file_(std::move(file)), sums_(std::move(sums)) {}

absl::StatusOr<std::unique_ptr<CheckedFile>> CheckedFile::Create(std::unique_ptr<disk::File> file,
                                                                 FileSums sums) {
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size != sums.num_bytes) {
    return absl::DataLossError(absl::StrCat("file ", file->path(), " is ", size,
                                            " bytes long, expecting ", sums.num_bytes));
  }
  const uint64_t fragments = (size + kFragmentBytes - 1) / kFragmentBytes;
  if (fragments != sums.fragment_crc32c.size()) {
    return absl::DataLossError(absl::StrCat("file ", file->path(), " of ", size,
                                            " bytes has checksums of ", sums.fragment_crc32c.size(),
                                            " fragments, expecting ", fragments));
  }
  return std::unique_ptr<CheckedFile>(new CheckedFile(std::move(file), std::move(sums)));
}

uint64_t CheckedFile::FragmentSize(uint64_t fragment) const {
  return std::min(kFragmentBytes, sums_.num_bytes - fragment * kFragmentBytes);
}

absl::Status CheckedFile::ReadFragment(uint64_t fragment, char* to) {
  const uint64_t first = fragment * kFragmentBytes;
  const uint64_t size = FragmentSize(fragment);
  KAON_ASSIGN_OR_RETURN(const size_t read, file_->Read(first, size, to));
  const uint32_t crc = proto::Crc32c(to, read);
  if (read == size && crc == sums_.fragment_crc32c[fragment]) return absl::OkStatus();
  const std::string where = absl::StrCat("file ", path(), ": fragment ", fragment, " (bytes ",
                                         first, " to ", first + size, ")");
  if (read != size) return absl::DataLossError(absl::StrCat(where, " ends after ", read, " bytes"));
  return absl::DataLossError(
      absl::StrCat(where, " has CRC32C ", absl::Hex(crc, absl::kZeroPad8), ", expecting ",
                   absl::Hex(sums_.fragment_crc32c[fragment], absl::kZeroPad8)));
}

absl::StatusOr<size_t> CheckedFile::Read(uint64_t offset, size_t size, char* to) {
  if (offset >= sums_.num_bytes) return 0;
  const uint64_t end = offset + std::min<uint64_t>(size, sums_.num_bytes - offset);
  for (uint64_t at = offset; at < end;) {
    const uint64_t fragment = at / kFragmentBytes;
    const uint64_t first = fragment * kFragmentBytes;
    const uint64_t next = std::min(end, first + FragmentSize(fragment));
    if (at == first && next == first + FragmentSize(fragment)) {
      KAON_RETURN_IF_ERROR(ReadFragment(fragment, to + (at - offset)));
    } else {
      if (held_fragment_ != fragment) {
        held_fragment_ = UINT64_MAX;
        held_bytes_.resize(FragmentSize(fragment));
        KAON_RETURN_IF_ERROR(ReadFragment(fragment, held_bytes_.data()));
        held_fragment_ = fragment;
      }
      std::memcpy(to + (at - offset), held_bytes_.data() + (at - first), next - at);
    }
    at = next;
  }
  return end - offset;
}

absl::Status CheckedFile::Verify() {
  FragmentSums sums;
  std::string bytes(std::min(kFragmentBytes, sums_.num_bytes), '\0');
  for (uint64_t fragment = 0; fragment < sums_.fragment_crc32c.size(); ++fragment) {
    KAON_RETURN_IF_ERROR(ReadFragment(fragment, bytes.data()));
    sums.Extend(absl::string_view(bytes).substr(0, FragmentSize(fragment)));
  }
  const std::string sha256 = sums.Finish().sha256;
  if (sha256 == sums_.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("file ", path(), " has SHA-256 ",
                                          absl::BytesToHexString(sha256), ", expecting ",
                                          absl::BytesToHexString(sums_.sha256)));
}

absl::Status CheckedFile::ReadOnly() const {
  return absl::FailedPreconditionError(absl::StrCat("file ", path(), " is opened for reading"));
}

absl::Status CheckedFile::Write(uint64_t, absl::Span<const absl::string_view>) {
  return ReadOnly();
}
absl::Status CheckedFile::Truncate(uint64_t) { return ReadOnly(); }
absl::Status CheckedFile::Sync() { return ReadOnly(); }

}  // namespace kaon::checkpoint
