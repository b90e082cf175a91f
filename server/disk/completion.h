// Waits for one operation of a BlockFile. The waiting thread owns it. Any thread may run the
// callback.
#ifndef KAON_SERVER_DISK_COMPLETION_H_
#define KAON_SERVER_DISK_COMPLETION_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "server/disk/block_file.h"

namespace kaon::disk {

class Completion {
 public:
  // Returns the argument of one operation, before whose end this object must not be destroyed.
  BlockFile::Done Callback() {
    return [this](absl::Status status) {
      MutexLock lock(mu_);
      status_ = std::move(status);
      done_.NotifyAll();
    };
  }
  // Blocks until the operation is done, and returns its status.
  absl::Status Wait() {
    MutexLock lock(mu_);
    while (!status_.has_value()) done_.Wait(mu_);
    return *status_;
  }

 private:
  Mutex mu_;
  CondVar done_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_COMPLETION_H_
