#include "proto/grpc_status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace kaon::proto {
namespace {

constexpr absl::string_view kLost = "connection lost: ";
// gRPC puts this before the reason why it could not connect.
constexpr absl::string_view kNotConnected = "failed to connect to all addresses; last error: ";

// Codes that gRPC uses for a lost connection (a broken TLS record, a reset stream).
bool IsMadeByTransports(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::UNKNOWN ||
         code == grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  // A google.rpc.Status for grpc-status-details-bin, with field 1, the code, alone.
  const std::string details = {'\x08', static_cast<char>(code)};
  return grpc::Status(code, OneLine(status.message()), details);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = OneLine(status.error_message());
  if (IsMadeByTransports(status.error_code()) && status.error_details().empty()) {
    absl::string_view why = message;
    if (absl::ConsumePrefix(&why, kNotConnected)) absl::ConsumePrefix(&why, "UNKNOWN: ");
    return ConnectionLost(why);
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

absl::Status ConnectionLost(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(kLost, why));
}

bool IsConnectionLost(const absl::Status& status) {
  return absl::IsUnavailable(status) && absl::StartsWith(status.message(), kLost);
}

}  // namespace kaon::proto
