#include "server/admin_cli/group_command.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "job/names.h"
#include "proto/status_macros.h"

namespace kaon::admin_cli {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Json MessageJson(const Message& message);

// Returns the value of `field`; for a repeated field, its element `index`.
Json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool in_list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(in_list ? reflection.GetRepeatedMessage(message, &field, index)
                                 : reflection.GetMessage(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return job::NameOf(*field.enum_type(), reflection.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return in_list ? reflection.GetRepeatedUInt32(message, &field, index)
                     : reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, &field);
    default:
      return reflection.GetString(message, &field);
  }
}

Json MessageJson(const Message& message) {
  Json json = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      const int size = reflection.FieldSize(message, &field);
      if (size == 0) continue;
      Json& list = json[field.name()] = Json::array();
      for (int element = 0; element < size; ++element) {
        list.push_back(ValueJson(message, field, element));
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json[field.name()] = ValueJson(message, field, 0);
    }
  }
  return json;
}

// Appends one line per field, under the path that sets it.
void AppendFields(const Json& json, const std::string& prefix, std::string& text) {
  for (const auto& [name, value] : json.items()) {
    const std::string path = absl::StrCat(prefix, name);
    if (value.is_object()) {
      AppendFields(value, absl::StrCat(path, "."), text);
    } else {
      absl::StrAppend(&text, path, std::string(path.size() < 32 ? 32 - path.size() : 1, ' '),
                      value.is_string() ? value.get<std::string>() : value.dump(), "\n");
    }
  }
}

// Returns the group or the workers that the answer describes.
Json ChangedJson(const v1::SetGroupResponse& response) {
  if (!response.has_workers()) return MessageJson(response.group());
  const v1::JobDefinition& workers = response.workers();
  Json json = Json::object();
  if (workers.world_size() > 0) json["world_size"] = workers.world_size();
  if (workers.worker_loss() != v1::WORKER_LOSS_POLICY_UNSPECIFIED) {
    json["worker_loss"] = job::NameOf(workers.worker_loss());
  }
  if (workers.has_worker_loss_seconds()) {
    json["worker_loss_seconds"] = workers.worker_loss_seconds();
  }
  if (workers.has_step_seconds()) json["step_seconds"] = workers.step_seconds();
  // An answer from the log has the changed fields alone.
  if (workers.world_size() > 0) json["paused"] = workers.paused();
  return json;
}

}  // namespace

v1::SetGroupRequest SetGroupRequestOf(const Options& options) {
  v1::SetGroupRequest request;
  request.set_job(options.job);
  request.set_group(options.group);
  for (const std::string& argument : options.settings) {
    const size_t equals = argument.find('=');
    v1::GroupSetting& setting = *request.add_settings();
    setting.set_field(argument.substr(0, equals));
    if (equals != std::string::npos) setting.set_value(argument.substr(equals + 1));
  }
  request.set_expected_revision(options.expected_revision.value_or(0));
  return request;
}

absl::StatusOr<v1::SetGroupResponse> SetGroup(const AdminCalls& calls, const Options& options) {
  v1::SetGroupRequest request = SetGroupRequestOf(options);
  request.set_request_id(RandomRequestId());
  if (!options.expected_revision.has_value()) {
    KAON_ASSIGN_OR_RETURN(const v1::JobDescription job,
                          calls.DescribeJob(AdminCalls::WhileAway::kAskAgain));
    request.set_expected_revision(job.config_revision());
  }
  return calls.SetGroup(request);
}

Json GroupJson(const v1::SetGroupResponse& response) {
  return {{"config_revision", response.config_revision()},
          {response.has_workers() ? "job" : "group", ChangedJson(response)}};
}

std::string GroupText(const v1::SetGroupResponse& response) {
  std::string text;
  AppendFields({{"config_revision", response.config_revision()}}, "", text);
  AppendFields(ChangedJson(response), "", text);
  return text;
}

}  // namespace kaon::admin_cli
