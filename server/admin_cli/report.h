// Prints the answers of the Admin service, as JSON with stable keys (docs/kaonctl.md) and as
// tables. Pure functions; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_REPORT_H_
#define KAON_SERVER_ADMIN_CLI_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::admin_cli {

// Keeps the keys in the order of insertion, which is the documented order.
using Json = nlohmann::ordered_json;

// Returns 16 hexadecimal digits, because JSON readers lose the low bits of 64-bit numbers.
std::string Hex(uint64_t digest);

// Returns a time of day as RFC 3339; null for 0, which is an unknown time.
Json TimeJson(int64_t unix_millis);

// The answer of one server to grpc.health.v1.Health/Check for the service that workers call.
struct HealthRow {
  std::string role;
  std::string address;
  bool serving = false;
  // SERVING, NOT_SERVING, UNKNOWN, or the code of the call's error.
  std::string status;
  // Why a server is NOT_SERVING, or the message of the error; empty if kaonctl could not learn it.
  std::string reason;
};

struct HealthReport {
  std::vector<HealthRow> rows;
  // OK if `rows` has every shard; otherwise why kaonctl could not list the shards.
  absl::Status shards;
};

Json JobJson(const v1::JobDescription& job);
std::string JobText(const v1::JobDescription& job);

// UNAVAILABLE names the shards whose parameters have no state in the answer.
absl::Status AllParametersSeen(const std::vector<v1::ParameterRow>& parameters);
// The state of a parameter is null, and "-" in a table, if its shard did not answer.
Json ParametersJson(const std::vector<v1::ParameterRow>& parameters);
std::string ParametersText(const std::vector<v1::ParameterRow>& parameters);
// Adds columns for `-o wide`, as does StepsWideText.
std::string ParametersWideText(const std::vector<v1::ParameterRow>& parameters);

Json StepsJson(const v1::StepHistoryResponse& history);
std::string StepsText(const v1::StepHistoryResponse& history);
std::string StepsWideText(const v1::StepHistoryResponse& history);

// OK if every server serves. Otherwise the error of `shards`, or UNAVAILABLE naming the servers.
absl::Status AllServe(const HealthReport& health);
Json HealthJson(const HealthReport& health);
std::string HealthText(const HealthReport& health);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_REPORT_H_
