// Small files that are written as a whole. Stateless; any thread, one for each directory at a time.
#ifndef KAON_SERVER_DISK_REPLACE_FILE_H_
#define KAON_SERVER_DISK_REPLACE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"
#include "server/disk/disk.h"
#include "server/disk/remove_if_there.h"

namespace kaon::disk {

// `name` holds `contents`, durably, the name included, when it returns OK. A crash or an error
// leaves it as it was or whole, and perhaps `name`.tmp, which the next call removes.
inline absl::Status ReplaceFile(Directory& directory, const std::string& name,
                                absl::string_view contents) {
  const std::string temporary = name + ".tmp";
  KAON_RETURN_IF_ERROR(RemoveIfThere(directory, temporary));
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, directory.Create(temporary));
  KAON_RETURN_IF_ERROR(file->Write(0, {contents}));
  KAON_RETURN_IF_ERROR(file->Sync());
  KAON_RETURN_IF_ERROR(directory.Rename(temporary, name));
  return directory.Sync();
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_REPLACE_FILE_H_
