// gRPC messages around a chunk whose payload is never copied: out from the caller's memory, in from
// the slices the transport received. Pure functions; any thread.
#ifndef KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_
#define KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/shard_channel.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

// Where a chunk belongs, without its checksum.
v1::TensorChunk HeaderOf(const ChunkToSend& chunk);

// A PushRequest with these chunks: a header slice, then a slice over each payload where it lies,
// which holds the lease until gRPC releases it. Each CRC32C is taken from its payload now.
grpc::ByteBuffer BuildChunkMessage(const LeasedChunks& chunks);

// A received message of chunks. The payload lies in `slices`, which keep it alive.
struct ReceivedChunks {
  std::vector<grpc::Slice> slices;
  proto::DecodedPush decoded;
};

// INVALID_ARGUMENT for bytes that are no PushRequest or PullResponse.
absl::StatusOr<ReceivedChunks> ReadChunkMessage(const grpc::ByteBuffer& message);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CHUNK_MESSAGE_H_
