// Builds and reads gRPC messages of chunks without copying a payload. A sent payload stays in the
// caller's memory; a received one stays in the slices of the transport. Pure functions; any thread.
#ifndef KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_
#define KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/shard_channel.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

// Returns the header that says where a chunk belongs, without its checksum.
v1::TensorChunk HeaderOf(const ChunkToSend& chunk);

// Builds a PushRequest with these chunks: a header slice, then one slice over each payload in
// place. Each slice holds the lease until gRPC releases the slice. Computes the CRC32C of each
// payload now. If the payloads travel over NCCL, the message has the headers alone.
grpc::ByteBuffer BuildChunkMessage(const LeasedChunks& chunks);

// A received message of chunks. The payload lies in `slices`, which keep it alive.
struct ReceivedChunks {
  std::vector<grpc::Slice> slices;
  proto::DecodedPush decoded;
};

// Returns INVALID_ARGUMENT for bytes that are no PushRequest or PullResponse.
absl::StatusOr<ReceivedChunks> ReadChunkMessage(const grpc::ByteBuffer& message);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_
