// Checksums of a version in a file, one for each piece of it. Values; the owner locks.
#ifndef KAON_SERVER_TIER_FILE_SUMS_H_
#define KAON_SERVER_TIER_FILE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kaon::tier {

class FileSums {
 public:
  // A read of a part of a version begins at a multiple of this, and ends at one or at its end.
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

  FileSums() = default;
  // Sums all of a version.
  explicit FileSums(absl::Span<const std::byte> version);

  // DATA_LOSS naming the first byte of a piece and both sums, if bytes that were read from `offset`
  // on are not those that were summed.
  absl::Status Check(uint64_t offset, absl::Span<const std::byte> read) const;

 private:
  std::vector<uint32_t> sums_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_FILE_SUMS_H_
