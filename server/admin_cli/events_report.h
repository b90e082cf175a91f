// Prints the event counts of the servers (`kaonctl status --events`) as JSON and as a table. Pure
// functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_EVENTS_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_EVENTS_REPORT_H_

#include <google/protobuf/repeated_field.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::admin_cli {

// Keyed by name; a missing event has not happened.
nlohmann::ordered_json EventsJson(const google::protobuf::RepeatedPtrField<v1::EventCount>& events);

// Covers the coordinator that answered and every shard. A shard that did not answer has a row.
std::string EventsText(const v1::GetStatusResponse& status);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_EVENTS_REPORT_H_
