// Outcome of a call of the Kaon client library: a canonical code and a message. The message names
// the thing, its value and the allowed value. Plain values; any thread. C++17, standard library
// only.
#ifndef KAON_CLIENT_KAON_STATUS_H_
#define KAON_CLIENT_KAON_STATUS_H_

#include <optional>
#include <string>
#include <utility>

namespace kaon {

// Numbers and words are those of the canonical gRPC codes.
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

// Returns "INVALID_ARGUMENT" and so on.
const char* NameOf(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // True for UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED: the same call may succeed
  // later.
  bool retriable() const;
  // Returns code and message, such as "DATA_LOSS: shard 1 ...".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value, or the error that prevented it. A Result is true if it has a value. Access to the value
// of a failed Result prints the status and aborts the process. Copies own their value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() & { return CheckedValue(); }
  const T& value() const& { return CheckedValue(); }
  T&& value() && { return std::move(CheckedValue()); }
  T* operator->() { return &CheckedValue(); }
  const T* operator->() const { return &CheckedValue(); }
  T& operator*() { return CheckedValue(); }
  const T& operator*() const { return CheckedValue(); }

 private:
  const T& CheckedValue() const;
  T& CheckedValue() { return const_cast<T&>(std::as_const(*this).CheckedValue()); }

  Status status_;
  std::optional<T> value_;
};

// Prints the status and aborts the process.
[[noreturn]] void DieOnBadResult(const Status& status);

template <typename T>
const T& Result<T>::CheckedValue() const {
  if (!value_.has_value()) DieOnBadResult(status_);
  return *value_;
}

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_STATUS_H_
