#include "server/tier/file_sums.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"

namespace kaon::tier {

FileSums::FileSums(absl::Span<const std::byte> version) {
  for (uint64_t at = 0; at < version.size(); at += kPieceBytes) {
    const absl::Span<const std::byte> piece = version.subspan(at, kPieceBytes);
    sums_.push_back(proto::Crc32c(piece.data(), piece.size()));
  }
}

absl::Status FileSums::Check(uint64_t offset, absl::Span<const std::byte> read) const {
  CHECK_EQ(offset % kPieceBytes, 0u);
  const FileSums now(read);
  for (size_t i = 0; i < now.sums_.size(); ++i) {
    const size_t place = offset / kPieceBytes + i;
    const uint32_t written = place < sums_.size() ? sums_[place] : 0;
    if (now.sums_[i] == written) continue;
    return absl::DataLossError(
        absl::StrCat("the file has other bytes than were written: from byte ", place * kPieceBytes,
                     " on their CRC32C is ", absl::Hex(now.sums_[i], absl::kZeroPad8), ", it was ",
                     absl::Hex(written, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

}  // namespace kaon::tier
