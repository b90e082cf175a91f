#include "server/admin_cli/health_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <iterator>
#include <vector>

#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"

namespace kaon::admin_cli {

namespace {

using google::protobuf::internal::WireFormatLite;

// grpc.health.v1.HealthCheckRequest has one field: the string `service`, number 1.
grpc::ByteBuffer RequestOf(const std::string& service) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint32(static_cast<uint32_t>(service.size()));
    out.WriteString(service);
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// grpc.health.v1.HealthCheckResponse has one field: the enum `status`, number 1.
absl::StatusOr<std::string> StatusOf(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return absl::InternalError("unreadable health response");
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  uint32_t value = 0;
  while (const uint32_t tag = in.ReadTag()) {
    const bool is_status = tag == WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_VARINT);
    const bool read = is_status ? in.ReadVarint32(&value) : WireFormatLite::SkipField(&in, tag);
    if (!read) return absl::InternalError("malformed health response");
  }
  constexpr const char* kNames[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
  return value < std::size(kNames) ? kNames[value] : "UNKNOWN";
}

}  // namespace

absl::StatusOr<std::string> CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                                        const std::string& service, absl::Duration timeout) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(timeout));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request = RequestOf(service);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  call->Finish(&response, &status, &tag);
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  KAON_RETURN_IF_ERROR(proto::FromGrpc(status));
  return StatusOf(response);
}

}  // namespace kaon::admin_cli
