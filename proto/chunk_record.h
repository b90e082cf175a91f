// Writes a message of chunks where the reader will read it, in one piece: header, then payload. The
// checksums are computed during the copy. Pure functions; any thread.
#ifndef KAON_PROTO_CHUNK_RECORD_H_
#define KAON_PROTO_CHUNK_RECORD_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/tensor.pb.h"

namespace kaon::proto {

// Writes at `to` what EncodeChunkHeader returns, and the payload after it. Returns the number of
// bytes. `fill` writes `payload_bytes` to the given address and the checksums into `chunks`; this
// function returns its error.
absl::StatusOr<size_t> WriteChunkRecord(absl::Span<v1::TensorChunk> chunks, size_t payload_bytes,
                                        std::byte* to,
                                        absl::FunctionRef<absl::Status(std::byte*)> fill);

// Copies `from` to `to` and returns the CRC32C of the copy, in one pass over memory.
uint32_t CopyWithCrc32c(absl::Span<const std::byte> from, std::byte* to);

}  // namespace kaon::proto

#endif  // KAON_PROTO_CHUNK_RECORD_H_
