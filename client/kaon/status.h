// Outcome of a call of the Kaon client library: a canonical code, a message that names the thing
// and both values, and whether trying again can help. Plain values; any thread. C++17, standard
// library only.
#ifndef KAON_CLIENT_KAON_STATUS_H_
#define KAON_CLIENT_KAON_STATUS_H_

#include <optional>
#include <string>
#include <utility>

namespace kaon {

// Same numbers and words as the canonical gRPC codes.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on.
const char* NameOf(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED: the same call may succeed later.
  bool retriable() const;
  // "DATA_LOSS: shard 1 ...".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value or the reason there is none. value() of a failed Result ends the process with the status
// printed.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return CheckedValue(); }
  T&& value() && { return std::move(CheckedValue()); }
  T* operator->() { return &CheckedValue(); }
  T& operator*() { return CheckedValue(); }

 private:
  T& CheckedValue();

  Status status_;
  std::optional<T> value_;
};

// Prints the status and aborts.
[[noreturn]] void DieOnBadResult(const Status& status);

template <typename T>
T& Result<T>::CheckedValue() {
  if (!value_.has_value()) DieOnBadResult(status_);
  return *value_;
}

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_STATUS_H_
