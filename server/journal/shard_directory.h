// The data_dir of a shard: private to its user, and used by one process at a time. Not thread-safe.
// The shard's composition root owns it.
#ifndef KAON_SERVER_JOURNAL_SHARD_DIRECTORY_H_
#define KAON_SERVER_JOURNAL_SHARD_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/posix_directory.h"
#include "server/journal/identity_file.h"

namespace kaon::journal {

class ShardDirectory {
 public:
  // Creates `data_dir` (mode 0700) if it does not exist; its parent must exist. Locks it for the
  // lifetime of the result. FAILED_PRECONDITION names the path and the reason: an error of the
  // system, open to other users, or in use by another process.
  static absl::StatusOr<std::unique_ptr<ShardDirectory>> Open(const std::string& data_dir);

  disk::Directory& files() { return *files_; }

  // Returns whether the directory has a journal, or remains of one.
  absl::StatusOr<bool> HoldsJournal();

 private:
  explicit ShardDirectory(std::unique_ptr<disk::PosixDirectory> files);

  const std::unique_ptr<disk::PosixDirectory> files_;
};

// Returns a random id, for a directory that gets a journal.
DirectoryId RandomDirectoryId();

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_SHARD_DIRECTORY_H_
