#include "server/disk/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/disk/posix_directory.h"

namespace kaon::disk {

namespace {

std::string ParentOf(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? end : path.rfind('/', end);
  if (slash == std::string::npos) return end == std::string::npos ? "/" : ".";
  return path.substr(0, slash + 1);
}

// Syncs the parent, so that a power cut cannot remove the directory's name and all its files. This
// is needed for an existing directory too: its creator may have been killed before the sync.
absl::Status SyncName(absl::string_view name, const std::string& path, bool created) {
  const absl::StatusOr<std::unique_ptr<PosixDirectory>> parent = PosixDirectory::At(ParentOf(path));
  // We did not create a directory whose parent we cannot read.
  if (!parent.ok() && !created) return absl::OkStatus();
  const absl::Status synced = parent.ok() ? (*parent)->Sync() : parent.status();
  if (synced.ok()) return synced;
  return absl::FailedPreconditionError(absl::StrCat(name, " ", path, ": ", synced.message()));
}

absl::Status CannotCreate(absl::string_view name, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("creating ", name, " ", path, ": ", std::strerror(errno)));
}

absl::Status CheckPresent(absl::string_view name, const std::string& path) {
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

}  // namespace

absl::Status CheckPrivateDirectory(absl::string_view name, const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return CheckPresent(name, path);
  const bool missing = errno == ENOENT;
  if (missing && ::access(ParentOf(path).c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return CannotCreate(name, path);
}

absl::Status CreatePrivateDirectory(absl::string_view name, const std::string& path) {
  const bool created = ::mkdir(path.c_str(), 0700) == 0;
  if (!created && errno != EEXIST) return CannotCreate(name, path);
  KAON_RETURN_IF_ERROR(CheckPresent(name, path));
  return SyncName(name, path, created);
}

}  // namespace kaon::disk
