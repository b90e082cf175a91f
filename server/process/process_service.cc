#include "server/process/process_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/grpc_status.h"
#include "proto/text.h"
#include "proto/version.h"
#include "server/auth/peer_identity.h"
#include "server/config/server_log.h"

namespace kaon::process {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kRedacted[] = "(redacted)";

bool IsSecret(absl::string_view field) {
  for (const absl::string_view word : {"key", "token", "secret", "password"}) {
    if (absl::StrContains(field, word)) return true;
  }
  return false;
}

// Replaces the values of secret text fields, also of messages inside. The configurations have no
// repeated messages.
void Redact(Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    if (field->is_repeated()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Redact(*reflection.MutableMessage(&message, field));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && IsSecret(field->name())) {
      reflection.SetString(&message, field, kRedacted);
    }
  }
}

// Returns 0 if /proc does not tell.
uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total_pages = 0;
  uint64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(proto::ToGrpc(status));
  return reactor;
}

}  // namespace

std::string RedactedText(const Message& config) {
  const std::unique_ptr<Message> copy(config.New());
  copy->CopyFrom(config);
  Redact(*copy);
  std::string text;
  google::protobuf::TextFormat::PrintToString(*copy, &text);
  return text;
}

grpc::ServerUnaryReactor* ProcessService::GetProcess(grpc::CallbackServerContext* context,
                                                     const v1::GetProcessRequest*,
                                                     v1::GetProcessResponse* response) {
  response->set_program(program_);
  response->set_version(proto::ThisVersion().version);
  response->set_log_level(config::LogLevel());
  response->set_resident_bytes(ResidentBytes());
  response->set_pushed_bytes(counts_.bytes(monitor::Transfer::kPushed));
  response->set_pulled_bytes(counts_.bytes(monitor::Transfer::kPulled));
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ProcessService::GetConfig(grpc::CallbackServerContext* context,
                                                    const v1::GetConfigRequest*,
                                                    v1::GetConfigResponse* response) {
  monitor::NoteAdminAct(counts_, auth::PeerName(auth::PeerIdentity(*context)), "GetConfig",
                        absl::OkStatus());
  response->set_config(RedactedText(config_));
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ProcessService::SetLogLevel(grpc::CallbackServerContext* context,
                                                      const v1::SetLogLevelRequest* request,
                                                      v1::SetLogLevelResponse* response) {
  absl::Status status = config::CheckLogLevel(request->level());
  if (request->level().empty()) {
    status = absl::InvalidArgumentError("level is empty, must be debug, info, warning or error");
  }
  const std::string previous = config::LogLevel();
  // The audit line is written whatever the levels before and after are.
  if (status.ok()) status = config::SetLogLevel("info");
  monitor::NoteAdminAct(counts_, auth::PeerName(auth::PeerIdentity(*context)),
                        absl::StrCat("SetLogLevel ", proto::Excerpt(request->level())), status);
  if (status.ok()) status = config::SetLogLevel(request->level());
  response->set_previous(previous);
  return Finish(context, status);
}

}  // namespace kaon::process
