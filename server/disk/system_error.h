// Errors of system calls on files. Pure functions; thread-safe.
#ifndef KAON_SERVER_DISK_SYSTEM_ERROR_H_
#define KAON_SERVER_DISK_SYSTEM_ERROR_H_

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::disk {

// Returns `what` and `path` with the text of errno `error`. The code, one of disk.h, tells the
// caller what to do: wait for room, end the process (IsDeviceError), or report to the user.
absl::Status SystemError(absl::string_view what, const std::string& path, int error);

// Repeats a system call that a signal interrupted.
template <typename Call>
auto Repeat(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_SYSTEM_ERROR_H_
