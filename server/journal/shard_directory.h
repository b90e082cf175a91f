// The data_dir of a shard: private to its user, and of one process at a time. Owned by the shard's
// composition root; one thread at a time.
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
  // Creates `data_dir` (mode 0700) if it does not exist; its parent must. It is locked for as long
  // as the result lives. FAILED_PRECONDITION naming the path and the system's reason, when it is
  // open to others, and when another process is using it.
  static absl::StatusOr<std::unique_ptr<ShardDirectory>> Open(const std::string& data_dir);

  disk::Directory& files() { return *files_; }

  // Whether there is a journal, or what is left of one.
  absl::StatusOr<bool> HoldsJournal();

 private:
  explicit ShardDirectory(std::unique_ptr<disk::PosixDirectory> files);

  const std::unique_ptr<disk::PosixDirectory> files_;
};

// For a directory that gets a journal.
DirectoryId RandomDirectoryId();

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_SHARD_DIRECTORY_H_
