#include "client/transport/chunk_message.h"

#include <memory>
#include <string>
#include <utility>

#include "proto/crc32c.h"
#include "proto/status_macros.h"

namespace kaon::client {
namespace {

using Lease = std::shared_ptr<const void>;

// Release callback of a slice: gRPC calls it when it no longer needs the payload.
void ReleaseLease(void* lease) { std::unique_ptr<Lease>(static_cast<Lease*>(lease)).reset(); }

}  // namespace

v1::TensorChunk HeaderOf(const ChunkToSend& chunk) {
  v1::TensorChunk header;
  header.set_parameter_id(chunk.key.first);
  header.set_micro_batch(chunk.key.second);
  header.set_offset(chunk.offset);
  header.set_num_elements(chunk.num_elements);
  header.set_dtype(static_cast<v1::DType>(chunk.dtype));
  return header;
}

namespace {

// Without payloads, and without their checksums: the digest of the transfer takes their place.
grpc::ByteBuffer BuildHeaders(const LeasedChunks& leased) {
  v1::PushRequest request;
  *request.mutable_nccl() = *leased.nccl;
  for (const ChunkToSend& chunk : leased.chunks) {
    const bool alone = leased.chunks.size() == 1;
    *(alone ? request.mutable_chunk() : request.add_pieces()) = HeaderOf(chunk);
  }
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

grpc::ByteBuffer BuildChunkMessage(const LeasedChunks& leased) {
  if (leased.nccl.has_value()) return BuildHeaders(leased);
  std::vector<v1::TensorChunk> headers;
  std::vector<grpc::Slice> slices(1);
  headers.reserve(leased.chunks.size());
  slices.reserve(leased.chunks.size() + 1);
  size_t payload_bytes = 0;
  for (const ChunkToSend& chunk : leased.chunks) {
    headers.push_back(HeaderOf(chunk));
    headers.back().set_crc32c(proto::Crc32c(chunk.payload.data(), chunk.payload.size()));
    auto lease = std::make_unique<Lease>(leased.lease);
    // gRPC's type has no const, but gRPC only reads what it sends.
    auto* payload = const_cast<std::byte*>(chunk.payload.data());
    slices.emplace_back(payload, chunk.payload.size(), &ReleaseLease, lease.release());
    payload_bytes += chunk.payload.size();
  }
  slices[0] = grpc::Slice(proto::EncodeChunkHeader(headers, payload_bytes));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<ReceivedChunks> ReadChunkMessage(const grpc::ByteBuffer& message) {
  ReceivedChunks received;
  if (!message.Dump(&received.slices).ok()) {
    return absl::InvalidArgumentError("a message that cannot be read: compressed or damaged");
  }
  std::vector<absl::Span<const std::byte>> runs;
  runs.reserve(received.slices.size());
  for (const grpc::Slice& slice : received.slices) {
    runs.push_back(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(slice.begin()), slice.size()));
  }
  KAON_ASSIGN_OR_RETURN(received.decoded, proto::DecodePush(runs));
  return received;
}

}  // namespace kaon::client
