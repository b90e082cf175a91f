// Converts a job between the public API and JSON, for callers in other languages. The JSON of a
// definition is Protobuf's of kaon.v1.JobDefinition. Pure functions; any thread.
#ifndef KAON_CLIENT_WIRE_JOB_JSON_H_
#define KAON_CLIENT_WIRE_JOB_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/kaon/job_definition.h"

namespace kaon::client {

// Reads proto names and JSON names of fields. world_size is 1 by default, and a dtype FLOAT32.
// INVALID_ARGUMENT says where the text is wrong, or names an unknown field.
absl::StatusOr<kaon::JobDefinition> ParseJobDefinition(absl::string_view json);

// Writes proto names of fields: definition, routes (indexed by parameter id), timeline,
// applied_step, weights_loaded and shard_addresses.
absl::StatusOr<std::string> DescriptionJson(const kaon::JobDescription& description);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_JOB_JSON_H_
