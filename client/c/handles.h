// Defines the handles of the C API, and turns C++ results into statuses and handles. The C caller
// owns a handle; any thread.
#ifndef KAON_CLIENT_C_HANDLES_H_
#define KAON_CLIENT_C_HANDLES_H_

#include <unistd.h>

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "client/c/completion.h"
#include "client/kaon/client.h"
#include "client/kaon/kaon.h"

struct kaon_status {
  kaon::Status status;
};
struct kaon_client {
  kaon::Client client;
};
struct kaon_job {
  kaon::Job job;
};
struct kaon_worker {
  kaon::Worker worker;
};
struct kaon_step {
  kaon::Step step;
};
struct kaon_future {
  // A child of fork() has no thread that would set the result, and may have a lock that stays held.
  bool InForkedChild() const { return getpid() != process; }

  const pid_t process = getpid();
  // Shared with the operation.
  std::shared_ptr<kaon::c::Completion> completion;
  std::function<void()> cancel;
  // A kaon_step_record points to these, which the first kaon_future_result fills.
  mutable kaon::Mutex mu;
  mutable std::vector<kaon_norm> groups;
  mutable std::vector<kaon_norm> norm_groups;
};

namespace kaon::c {

inline kaon_status* ToC(Status status) {
  if (status.ok()) return nullptr;
  return std::make_unique<kaon_status>(kaon_status{std::move(status)}).release();
}

// Gives `value` to the C caller, who frees the handle.
template <typename Handle, typename... Values>
void Release(Handle** to, Values&&... values) {
  *to = std::make_unique<Handle>(Handle{std::forward<Values>(values)...}).release();
}

// Gives the future of an operation to the caller.
template <typename T>
void ReleaseFuture(Future<T> future, kaon_future** to) {
  auto handle = std::make_unique<kaon_future>();
  handle->completion = CompletionOf(std::move(future), handle->cancel);
  *to = handle.release();
}

// Takes back what Release gave.
template <typename Handle>
void Free(Handle* handle) {
  std::unique_ptr<Handle>(handle).reset();
}

// Runs `call`, which returns a Status. No exception passes to C: one of a library becomes a status.
template <typename Call>
kaon_status* Guarded(Call call) noexcept {
  try {
    return ToC(call());
  } catch (const std::bad_alloc&) {
    return ToC(Status(StatusCode::kResourceExhausted, "no memory is left in this process"));
  } catch (const std::exception& exception) {
    return ToC(Status(StatusCode::kInternal, exception.what()));
  }
}

// Runs `call`, which can only fail for lack of memory, and then has no effect.
template <typename Call>
void Attempt(Call call) noexcept {
  try {
    call();
  } catch (const std::exception&) {
    return;
  }
}

// Returns INVALID_ARGUMENT that names the first argument that is NULL: {{"job", job}, ...}.
inline Status CheckArguments(std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, value] : arguments) {
    if (value == nullptr) {
      return Status(StatusCode::kInvalidArgument, std::string(name) + " is NULL");
    }
  }
  return Status();
}

}  // namespace kaon::c

#endif  // KAON_CLIENT_C_HANDLES_H_
