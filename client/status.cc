#include "client/kaon/status.h"

#include <cstdio>
#include <cstdlib>

namespace kaon {

const char* NameOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

bool Status::retriable() const {
  return code_ == StatusCode::kUnavailable || code_ == StatusCode::kDeadlineExceeded ||
         code_ == StatusCode::kResourceExhausted;
}

std::string Status::ToString() const {
  if (ok()) return NameOf(code_);
  return std::string(NameOf(code_)) + ": " + message_;
}

void DieOnBadResult(const Status& status) {
  std::fprintf(stderr, "value() of a failed kaon::Result: %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace kaon
