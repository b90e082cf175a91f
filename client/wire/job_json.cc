#include "client/wire/job_json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/wire/job_conversion.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::client {

absl::StatusOr<kaon::JobDefinition> ParseJobDefinition(absl::string_view json) {
  v1::JobDefinition wire;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &wire);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job definition: ", std::string(parsed.message())));
  }
  // The C++ structs have the same defaults.
  for (v1::ParameterSpec& parameter : *wire.mutable_parameters()) {
    if (parameter.dtype() == v1::DTYPE_UNSPECIFIED) parameter.set_dtype(v1::DTYPE_FLOAT32);
  }
  if (wire.world_size() == 0) wire.set_world_size(1);
  return FromProto(wire);
}

absl::StatusOr<std::string> DescriptionJson(const kaon::JobDescription& description) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string definition;
  const auto printed = google::protobuf::util::MessageToJsonString(ToProto(description.definition),
                                                                   &definition, options);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  nlohmann::json routes = nlohmann::json::array();
  for (const kaon::ParameterRoute& route : description.routes) {
    routes.push_back({{"group", route.group},
                      {"norm_group", route.norm_group},
                      {"reason", route.reason},
                      {"shard", route.shard},
                      {"lr_multiplier", route.lr_multiplier},
                      {"weight_decay_multiplier", route.weight_decay_multiplier}});
  }
  const nlohmann::json rest = {{"routes", std::move(routes)},
                               {"timeline", description.timeline},
                               {"applied_step", description.applied_step},
                               {"weights_loaded", description.weights_loaded},
                               {"shard_addresses", description.shard_addresses}};
  const std::string text = rest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // `rest` is an object with members: the definition becomes its first one.
  return absl::StrCat("{\"definition\":", definition, ",", text.substr(1));
}

}  // namespace kaon::client
