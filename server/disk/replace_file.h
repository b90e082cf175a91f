// Replaces small files as a whole. Stateless; thread-safe for different directories.
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

// Replaces the contents of `name`. On OK contents and name are durable. After a crash or an error
// the file is unchanged or whole. `name`.tmp may remain, and the next call removes it. Errors are
// those of Directory and File.
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
