// Checks a directory of a server's configuration. Any thread.
#ifndef KAON_SERVER_CONFIG_CHECK_DIRECTORY_H_
#define KAON_SERVER_CONFIG_CHECK_DIRECTORY_H_

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/text.h"

namespace kaon::config {

// Checks that `path` is a directory that this process may use in `mode`, as in access(2). An empty
// path is OK. FAILED_PRECONDITION names the field, the path and the system's reason.
inline absl::Status CheckDirectory(absl::string_view field, const std::string& path, int mode) {
  if (path.empty() || access(absl::StrCat(path, "/.").c_str(), mode) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(field, " '", proto::OneLine(path), "': ", std::strerror(errno),
                   ", must be an existing directory that this process may ",
                   (mode & W_OK) != 0 ? "write to" : "read"));
}

// Checks the directory in which `path`, a file, will be created. Errors as in CheckDirectory.
inline absl::Status CheckDirectoryOf(absl::string_view field, const std::string& path) {
  const size_t slash = path.rfind('/');
  if (path.empty()) return absl::OkStatus();
  return CheckDirectory(absl::StrCat("directory of ", field),
                        slash == std::string::npos ? "." : path.substr(0, slash + 1), W_OK | X_OK);
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_CHECK_DIRECTORY_H_
