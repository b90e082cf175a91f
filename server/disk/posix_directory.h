// A directory of the operating system, as disk.h describes it: files are opened beneath the
// directory's descriptor, never through a symbolic link, and belong to this user alone (mode 0600).
// Owned by whoever keeps files in it; one thread at a time.
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
  // An existing directory. FAILED_PRECONDITION naming it and the system's reason.
  static absl::StatusOr<std::unique_ptr<PosixDirectory>> At(const std::string& path);
  ~PosixDirectory() override;

  // Until this object dies no other one of any process gets the lock of the same directory.
  // FAILED_PRECONDITION naming the path when another one has it.
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
