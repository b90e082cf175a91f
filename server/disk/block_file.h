// One preallocated file that holds state: the seam between a tier and the disk. Reads and writes
// whole blocks past the page cache, many at once. ThreadedBlockFile, UringBlockFile and the
// simulator implement it. Thread-safe, except that operations in progress must not overlap. The
// tier owns it.
#ifndef KAON_SERVER_DISK_BLOCK_FILE_H_
#define KAON_SERVER_DISK_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace kaon::disk {

// Offsets, sizes and addresses of memory are multiples of this many bytes.
inline constexpr uint64_t kBlockBytes = 4096;

// Returns the bytes of the blocks that `bytes` need.
inline uint64_t RoundUpToBlocks(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

class BlockFile {
 public:
  // Called once for each operation, on any thread, perhaps before the operation's call returns. It
  // may start other operations, and must not block. Codes are those of disk.h; an operation outside
  // the file gets OUT_OF_RANGE, unaligned memory INVALID_ARGUMENT, both naming the values.
  using Done = std::function<void(absl::Status)>;

  // Blocks until every operation is done.
  virtual ~BlockFile() = default;

  // Read `to` from `offset` on, and write `from` there. The memory must stay until `done` is
  // called. After an error its contents, or those of the blocks, are unknown.
  virtual void Read(uint64_t offset, absl::Span<std::byte> to, Done done) = 0;
  virtual void Write(uint64_t offset, absl::Span<const std::byte> from, Done done) = 0;
  // Makes durable every write that was done before this call. After an error nobody knows what the
  // file holds: the process must end.
  virtual absl::Status Sync() = 0;

  virtual uint64_t size_bytes() const = 0;
  // Returns the path, for messages.
  virtual const std::string& path() const = 0;
};

// Checks the arguments of Read and Write.
inline absl::Status CheckBlocks(const BlockFile& file, uint64_t offset,
                                absl::Span<const std::byte> memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  if ((offset | memory.size() | address) % kBlockBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", memory.size(), " bytes of memory at ", absl::Hex(address),
                     " for offset ", offset, ", each must be a multiple of ", kBlockBytes));
  }
  const uint64_t size = file.size_bytes();
  if (offset <= size && memory.size() <= size - offset) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(file.path(), ": ", memory.size(), " bytes from offset ",
                                            offset, " on, the file has ", size));
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_BLOCK_FILE_H_
