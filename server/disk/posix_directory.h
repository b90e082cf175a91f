// A directory of the operating system, as disk.h describes it. Opens files relative to the
// directory's descriptor, never through a symbolic link, and creates them for this user alone (mode
// 0600). Not thread-safe. The user of the files owns it.
#ifndef KAON_SERVER_DISK_POSIX_DIRECTORY_H_
#define KAON_SERVER_DISK_POSIX_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::disk {

class PosixDirectory : public Directory {
 public:
  // Opens an existing directory. FAILED_PRECONDITION names it and the system's reason.
  static absl::StatusOr<std::unique_ptr<PosixDirectory>> At(const std::string& path);
  ~PosixDirectory() override;

  // Locks the directory for the lifetime of this object, against every other object and process.
  // FAILED_PRECONDITION names the path if another one holds the lock.
  absl::Status Lock();

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status Sync() override;
  const std::string& path() const override { return path_; }

 private:
  PosixDirectory(std::string path, int fd);

  absl::StatusOr<std::unique_ptr<File>> OpenAt(const std::string& name, int flags);

  const std::string path_;
  const int fd_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_POSIX_DIRECTORY_H_
