// Tensors on the wire (protocol.md section 4): encodes the header before a chunk's payload by hand,
// decodes messages without copying the payload, and verifies checksums. No other code verifies a
// checksum of a chunk. Pure functions; any thread.
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

// Maximum number of payload bytes in one message, whether it has one chunk or several.
inline constexpr size_t kMaxChunkBytes = size_t{1} << 20;
// Bounds of the number of chunks that a message has as `pieces`.
inline constexpr size_t kMinPieces = 2;
inline constexpr size_t kMaxPieces = 1024;

// Consecutive runs of one message's bytes, as the transport received them.
using Slices = absl::Span<const absl::Span<const std::byte>>;

// Returns the bytes per element of a dtype on the wire; 0 for a value that this version does not
// know.
size_t WireSizeOf(v1::DType dtype);

// Returns the bytes that precede `payload_bytes` of payload in a PushRequest or a PullResponse;
// their field numbers are the same. One chunk is written as `chunk`, several as `pieces`.
std::string EncodeChunkHeader(absl::Span<const v1::TensorChunk> chunks, size_t payload_bytes);

// A PushRequest, or a PullResponse decoded as one.
struct DecodedPush {
  // All fields except the payload.
  v1::PushRequest message;
  // The payload, in order: spans of the slices given to DecodePush, or of `owned`.
  std::vector<absl::Span<const std::byte>> payload;
  // Set if the payload was not last in the message and was copied. A vector, because moving it
  // keeps `payload` valid.
  std::vector<std::byte> owned;

  size_t payload_bytes() const;
};

// Decodes a message. Accepts and rejects the same bytes as the generated parser, but does not copy
// a payload that is the last field. INVALID_ARGUMENT for bytes that are no such message.
// Also INVALID_ARGUMENT, before parsing, for more than kMaxPieces pieces, or for more than 128 KiB
// that are neither payload nor a finish's missing parameters. Once parsed, pieces and unknown
// fields use many times the memory of their bytes.
absl::StatusOr<DecodedPush> DecodePush(Slices slices);

// One chunk of a message, and its part of the payload in place.
struct ChunkView {
  const v1::TensorChunk* chunk = nullptr;
  Slices payload;
};

// Movable only: `chunks` of a copy would refer to the `runs` of the original.
struct ChunkViews {
  ChunkViews() = default;
  ChunkViews(ChunkViews&&) = default;
  ChunkViews& operator=(ChunkViews&&) = default;

  std::vector<ChunkView> chunks;
  // Memory that the payload spans of `chunks` refer to.
  std::vector<absl::Span<const std::byte>> runs;
};

// Returns the chunks of a message in order; none if it has neither `chunk` nor `pieces`. The
// message must outlive them. Does not check a `chunk`. INVALID_ARGUMENT names field, value and
// range: both fields set, a bad number of pieces, or pieces that do not add up to the payload.
absl::StatusOr<ChunkViews> SplitPayload(const DecodedPush& message);

// Returns the CRC32C of the concatenation.
uint32_t Crc32c(Slices slices);

// Compares checksums. If the payload is not what was sent, DATA_LOSS names the chunk and both
// values.
absl::Status VerifyChecksum(const v1::TensorChunk& chunk, Slices payload);

}  // namespace kaon::proto

#endif  // KAON_PROTO_TENSOR_STREAM_H_
