// Lists the services of a server by gRPC's reflection, as grpcurl does. Debian ships no generated
// code for it. A free function; any thread.
#ifndef KAON_TESTS_TESTING_SERVICE_LISTING_H_
#define KAON_TESTS_TESTING_SERVICE_LISTING_H_

#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"

namespace kaon::testing {

// Returns the names in a ServerReflectionResponse: list_services_response = 6, service = 1,
// name = 1.
inline std::set<std::string> ServicesIn(const std::string& response) {
  google::protobuf::UnknownFieldSet fields;
  std::set<std::string> names;
  if (!fields.ParseFromString(response)) return names;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() != 6) continue;
    google::protobuf::UnknownFieldSet list;
    list.ParseFromString(fields.field(i).length_delimited());
    for (int j = 0; j < list.field_count(); ++j) {
      google::protobuf::UnknownFieldSet service;
      service.ParseFromString(list.field(j).length_delimited());
      for (int k = 0; k < service.field_count(); ++k) {
        if (service.field(k).number() == 1) names.insert(service.field(k).length_delimited());
      }
    }
  }
  return names;
}

// Returns full names, such as kaon.v1.Admin.
inline absl::StatusOr<std::set<std::string>> ListServices(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(absl::Minutes(1)));
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto done = [&] { return queue.Next(&tag, &ok) && ok; };
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(&context);
  // ServerReflectionRequest with list_services = 7, a text that the server ignores.
  const grpc::Slice slice(std::string("\x3a\x00", 2));
  grpc::ByteBuffer answer;
  if (done()) {
    call->Write(grpc::ByteBuffer(&slice, 1), &context);
    if (done()) {
      call->Read(&answer, &context);
      done();
    }
  }
  call->WritesDone(&context);
  done();
  grpc::Status status;
  call->Finish(&status, &context);
  done();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (!status.ok()) return proto::FromGrpc(status);
  std::vector<grpc::Slice> slices;
  if (!answer.Dump(&slices).ok()) return absl::InternalError("no answer");
  std::string bytes;
  for (const grpc::Slice& one : slices) {
    bytes.append(reinterpret_cast<const char*>(one.begin()), one.size());
  }
  return ServicesIn(bytes);
}

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_SERVICE_LISTING_H_
