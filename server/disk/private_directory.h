// The check that a directory belongs to this user alone. Pure functions over the file system; any
// thread.
#ifndef KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_
#define KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::disk {

// Creates `path` (mode 0700) if it does not exist; its parent must. The directory's name is durable
// when this returns OK. `name` is what messages call it. FAILED_PRECONDITION naming path and the
// system's reason, or when it is no directory or open to others.
absl::Status CreatePrivateDirectory(absl::string_view name, const std::string& path);

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_PRIVATE_DIRECTORY_H_
