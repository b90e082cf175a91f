// Tensors on the wire: the hand-encoded header in front of a chunk's payload, the decoder that
// leaves the payload where it was received, and the only checksum check (protocol.md section 4).
// Pure functions; any thread.
#ifndef KAON_PROTO_TENSOR_STREAM_H_
#define KAON_PROTO_TENSOR_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/tensor.pb.h"

namespace kaon::proto {

// Most payload bytes of one chunk.
inline constexpr size_t kMaxChunkBytes = size_t{1} << 20;

// Consecutive runs of one message's bytes, as the transport received them.
using Slices = absl::Span<const absl::Span<const std::byte>>;

// Bytes of a dtype's element on the wire; 0 for a value this version does not know.
size_t WireSizeOf(v1::DType dtype);

// What precedes `payload_bytes` of payload in a PushRequest or a PullResponse (their field numbers
// are the same).
std::string EncodeChunkHeader(const v1::TensorChunk& chunk, size_t payload_bytes);

// A PushRequest, or a PullResponse read as one.
struct DecodedPush {
  // Everything but the payload.
  v1::PushRequest message;
  // The payload, in order: memory of the slices given to DecodePush, or of `owned`.
  std::vector<absl::Span<const std::byte>> payload;
  // Set when the payload did not lie last in the message and was copied. A vector, because moving
  // it keeps `payload` valid.
  std::vector<std::byte> owned;

  size_t payload_bytes() const;
};

// Accepts and refuses what the generated parser does, without copying a payload that is the last
// field. INVALID_ARGUMENT for bytes that are no such message.
absl::StatusOr<DecodedPush> DecodePush(Slices slices);

// CRC32C of the concatenation.
uint32_t Crc32c(Slices slices);

// DATA_LOSS naming the chunk and both checksums when the payload is not what was sent.
absl::Status VerifyChecksum(const v1::TensorChunk& chunk, Slices payload);

}  // namespace kaon::proto

#endif  // KAON_PROTO_TENSOR_STREAM_H_
