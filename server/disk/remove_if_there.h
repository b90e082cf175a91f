// Removes a file that may not exist. One function; the rules of Directory for threads apply.
#ifndef KAON_SERVER_DISK_REMOVE_IF_THERE_H_
#define KAON_SERVER_DISK_REMOVE_IF_THERE_H_

#include <string>

#include "absl/status/status.h"
#include "server/disk/disk.h"

namespace kaon::disk {

// Calls Directory::Remove, and returns OK for NOT_FOUND too. After a crash, or with another
// remover, the result is the same.
inline absl::Status RemoveIfThere(Directory& directory, const std::string& name) {
  const absl::Status removed = directory.Remove(name);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_REMOVE_IF_THERE_H_
