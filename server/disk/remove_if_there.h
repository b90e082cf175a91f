// Removing a file that may be gone already. A pure function over a directory; whoever may use that.
#ifndef KAON_SERVER_DISK_REMOVE_IF_THERE_H_
#define KAON_SERVER_DISK_REMOVE_IF_THERE_H_

#include <string>

#include "absl/status/status.h"
#include "server/disk/disk.h"

namespace kaon::disk {

// As Directory::Remove, and OK where the file is not there: whoever else removes the same, or a
// removal that a crash cut short, comes to the same end.
inline absl::Status RemoveIfThere(Directory& directory, const std::string& name) {
  const absl::Status removed = directory.Remove(name);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_REMOVE_IF_THERE_H_
