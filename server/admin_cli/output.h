// Formats an answer for machines. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_OUTPUT_H_
#define KAON_SERVER_ADMIN_CLI_OUTPUT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace kaon::admin_cli {

// Both replace bytes that are not UTF-8, and end with a newline.
std::string ToJsonText(const nlohmann::ordered_json& json);
// Writes strings in quotes, as in JSON.
std::string ToYaml(const nlohmann::ordered_json& json);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_OUTPUT_H_
