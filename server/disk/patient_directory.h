// A directory in which a full disk only delays: what fails for want of room is tried again until
// whoever owns it gives up. Syncs are not: what a failed one leaves is unknown. Owned by whoever
// writes; as Directory, one thread at a time.
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
  // Called with each RESOURCE_EXHAUSTED, returns when it is worth trying again; false to give up,
  // and that is what the operation returns then.
  using AwaitRoom = std::function<bool(const absl::Status& status)>;

  PatientDirectory(std::unique_ptr<Directory> directory, AwaitRoom await_room)
      : directory_(std::move(directory)), await_room_(std::move(await_room)) {}

  // Files that come from here are as patient, and do not outlive it.
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
