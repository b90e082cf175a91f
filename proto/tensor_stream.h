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

// Most payload bytes of one message, be it a chunk or several.
inline constexpr size_t kMaxChunkBytes = size_t{1} << 20;
// How many chunks a message may have as `pieces`.
inline constexpr size_t kMinPieces = 2;
inline constexpr size_t kMaxPieces = 1024;

// Consecutive runs of one message's bytes, as the transport received them.
using Slices = absl::Span<const absl::Span<const std::byte>>;

// Bytes of a dtype's element on the wire; 0 for a value this version does not know.
size_t WireSizeOf(v1::DType dtype);

// What precedes `payload_bytes` of payload in a PushRequest or a PullResponse (their field numbers
// are the same): one chunk as `chunk`, several as `pieces`.
std::string EncodeChunkHeader(absl::Span<const v1::TensorChunk> chunks, size_t payload_bytes);

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
// field. INVALID_ARGUMENT for bytes that are no such message, and before they are parsed for more
// than kMaxPieces pieces, or 128 KiB beside the payload and a finish's missing parameters: parsed,
// pieces and unknown fields cost many times the memory of their bytes.
absl::StatusOr<DecodedPush> DecodePush(Slices slices);

// One chunk of a message and its part of the payload, where that lies.
struct ChunkView {
  const v1::TensorChunk* chunk = nullptr;
  Slices payload;
};

// Can be moved; a copy would be of `chunks` that look into another one's `runs`.
struct ChunkViews {
  ChunkViews() = default;
  ChunkViews(ChunkViews&&) = default;
  ChunkViews& operator=(ChunkViews&&) = default;

  std::vector<ChunkView> chunks;
  // What the chunks' payloads are spans of.
  std::vector<absl::Span<const std::byte>> runs;
};

// The chunks of a message in their order, none if it has neither `chunk` nor `pieces`. It outlives
// them. INVALID_ARGUMENT, naming field, value and range, for both of them, a number of pieces
// out of bounds, or pieces that are not what the payload is made of. A `chunk` is not looked at.
absl::StatusOr<ChunkViews> SplitPayload(const DecodedPush& message);

// CRC32C of the concatenation.
uint32_t Crc32c(Slices slices);

// DATA_LOSS naming the chunk and both checksums when the payload is not what was sent.
absl::Status VerifyChecksum(const v1::TensorChunk& chunk, Slices payload);

}  // namespace kaon::proto

#endif  // KAON_PROTO_TENSOR_STREAM_H_
