#include "server/admin_cli/exit_status.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kaon::admin_cli {

namespace {

struct Row {
  int exit_status;
  std::vector<absl::StatusCode> codes;
  const char* meaning;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {0, {absl::StatusCode::kOk}, "done"},
      {1, {}, "any other failure, such as a row of verify-numerics"},
      {kExitUsage,
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kOutOfRange},
       "wrong command line or value, or unusable certificate files"},
      {3, {absl::StatusCode::kNotFound}, "no such job, group, parameter, checkpoint or file"},
      {4,
       {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded},
       "a server does not answer or does not serve, or a part of the answer is unknown"},
      {5,
       {absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnauthenticated},
       "the certificate's role may not do this"},
      {6,
       {absl::StatusCode::kAborted},
       "the job has changed meanwhile, or the command was not confirmed"},
  };
  return rows;
}

std::string Error(absl::string_view code, absl::string_view message, int exit_status, bool json) {
  if (!json) {
    return absl::StrCat("kaonctl: ", code.empty() ? "" : absl::StrCat(code, ": "), message, "\n");
  }
  using Json = nlohmann::ordered_json;
  const Json error = {{"error",
                       {{"code", code.empty() ? "INVALID_ARGUMENT" : std::string(code)},
                        {"message", std::string(message)},
                        {"exit_status", exit_status}}}};
  return error.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int ExitStatusOf(const absl::Status& status) {
  for (const Row& row : Rows()) {
    for (const absl::StatusCode code : row.codes) {
      if (code == status.code()) return row.exit_status;
    }
  }
  return 1;
}

std::string ExitStatusHelp() {
  std::string text = "Exit status:\n";
  for (const Row& row : Rows())
    absl::StrAppend(&text, "  ", row.exit_status, "  ", row.meaning, "\n");
  return text;
}

std::string ErrorText(const absl::Status& status, bool json) {
  return Error(absl::StatusCodeToString(status.code()), status.message(), ExitStatusOf(status),
               json);
}

std::string UsageErrorText(const std::string& message, bool json) {
  return Error("", message, kExitUsage, json);
}

}  // namespace kaon::admin_cli
