// A message of chunks written where it will be read, in one piece: header, then payload, whose
// checksums are taken while it is put there. Pure functions; any thread.
#ifndef KAON_PROTO_CHUNK_RECORD_H_
#define KAON_PROTO_CHUNK_RECORD_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/tensor.pb.h"

namespace kaon::proto {

// As EncodeChunkHeader and the payload behind it, at `to`; how many bytes there are. `fill` puts
// `payload_bytes` where it is told and the checksums into `chunks`; its error is this one's.
absl::StatusOr<size_t> WriteChunkRecord(absl::Span<v1::TensorChunk> chunks, size_t payload_bytes,
                                        std::byte* to,
                                        absl::FunctionRef<absl::Status(std::byte*)> fill);

// `to` <- `from`; the CRC32C of what was copied. In one pass over memory.
uint32_t CopyWithCrc32c(absl::Span<const std::byte> from, std::byte* to);

}  // namespace kaon::proto

#endif  // KAON_PROTO_CHUNK_RECORD_H_
