// A directory in which a full disk only delays. It retries an operation that found no room until
// the owner's callback gives up. It never retries a Sync: the state after a failed Sync is unknown.
// Not thread-safe. The writer owns it.
#ifndef KAON_SERVER_DISK_PATIENT_DIRECTORY_H_
#define KAON_SERVER_DISK_PATIENT_DIRECTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::disk {

class PatientDirectory : public Directory {
 public:
  // Called after each RESOURCE_EXHAUSTED. Blocks until a retry is worthwhile and returns true.
  // Returns false to give up; the operation then returns that error.
  using AwaitRoom = std::function<bool(const absl::Status& status)>;

  PatientDirectory(std::unique_ptr<Directory> directory, AwaitRoom await_room)
      : directory_(std::move(directory)), await_room_(std::move(await_room)) {}

  // Their files retry too, and must not outlive this directory.
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override { return directory_->List(); }
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status Sync() override { return directory_->Sync(); }
  const std::string& path() const override { return directory_->path(); }

 private:
  const std::unique_ptr<Directory> directory_;
  const AwaitRoom await_room_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_PATIENT_DIRECTORY_H_
