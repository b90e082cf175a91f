// Checks that a directory belongs to this user alone. Pure functions over the file system;
// thread-safe.
#ifndef KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_
#define KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::disk {

// Returns the error that CreatePrivateDirectory would return; changes nothing.
absl::Status CheckPrivateDirectory(absl::string_view name, const std::string& path);

// Creates `path` (mode 0700) if it does not exist; its parent must exist. On OK the directory's
// name is durable. Messages call the directory `name`.
//   FAILED_PRECONDITION  no directory, or open to other users, or an error of the system; names
//                        path and reason
absl::Status CreatePrivateDirectory(absl::string_view name, const std::string& path);

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_
