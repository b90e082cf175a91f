// The generated messages of raw methods. The shard checks the size of a request before it parses
// it: parsed fields may take many times their bytes. Functions only; any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_RAW_MESSAGE_H_
#define KAON_SERVER_SHARD_TRANSPORT_RAW_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/grpc_status.h"
#include "proto/tensor_stream.h"

namespace kaon::shard {

// Returns the message. RESOURCE_EXHAUSTED: it has more than 1 MiB. INVALID_ARGUMENT: it is not a
// Message.
template <typename Message>
absl::StatusOr<Message> ParseRequest(const grpc::ByteBuffer& buffer) {
  if (buffer.Length() > proto::kMaxChunkBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "request of ", buffer.Length(), " bytes, expecting at most ", proto::kMaxChunkBytes));
  }
  std::vector<grpc::Slice> slices;
  if (const grpc::Status dumped = buffer.Dump(&slices); !dumped.ok())
    return proto::FromGrpc(dumped);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return absl::InvalidArgumentError(
      absl::StrCat("message of ", bytes.size(), " bytes is not a ", message.GetTypeName()));
}

// Returns the serialized message.
template <typename Message>
grpc::ByteBuffer Serialize(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_RAW_MESSAGE_H_
