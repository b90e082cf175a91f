#include "proto/chunk_record.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::proto {

absl::StatusOr<size_t> WriteChunkRecord(absl::Span<v1::TensorChunk> chunks, size_t payload_bytes,
                                        std::byte* to,
                                        absl::FunctionRef<absl::Status(std::byte*)> fill) {
  // The payload's position depends on the length of the header, which has the checksums. Every
  // checksum but 0 has the same length as 1; 0 is left out.
  for (v1::TensorChunk& chunk : chunks) chunk.set_crc32c(1);
  const size_t expected = EncodeChunkHeader(chunks, payload_bytes).size();
  KAON_RETURN_IF_ERROR(fill(to + expected));
  const std::string header = EncodeChunkHeader(chunks, payload_bytes);
  if (header.size() != expected) std::memmove(to + header.size(), to + expected, payload_bytes);
  std::memcpy(to, header.data(), header.size());
  return header.size() + payload_bytes;
}

uint32_t CopyWithCrc32c(absl::Span<const std::byte> from, std::byte* to) {
  // Small enough that the second pass finds the bytes in the cache.
  constexpr size_t kBlockBytes = 16 << 10;
  uint32_t crc = 0;
  while (!from.empty()) {
    const absl::Span<const std::byte> block = from.first(std::min(kBlockBytes, from.size()));
    crc = ExtendCrc32c(crc, block.data(), block.size());
    std::memcpy(to, block.data(), block.size());
    to += block.size();
    from.remove_prefix(block.size());
  }
  return crc;
}

}  // namespace kaon::proto
