#include "server/disk/private_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kaon::disk {

absl::Status CreatePrivateDirectory(absl::string_view name, const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(
        absl::StrCat("creating ", name, " ", path, ": ", std::strerror(errno)));
  }
  struct stat directory;
  if (::stat(path.c_str(), &directory) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(name, " ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISDIR(directory.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(name, " ", path, " is not a directory"));
  }
  if ((directory.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " ", path, " has mode 0", absl::Hex((directory.st_mode >> 6) & 7),
                     absl::Hex((directory.st_mode >> 3) & 7), absl::Hex(directory.st_mode & 7),
                     ", expecting 0700"));
  }
  return absl::OkStatus();
}

}  // namespace kaon::disk
