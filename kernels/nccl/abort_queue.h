// AbortQueue: aborts communicators on a thread of its own, because an abort may block forever. All
// that wait are aborted as one group: aborted one by one, they may wait for each other's kernels.
// Owned by the end of a link that has the sessions. Any thread.
#ifndef KAON_KERNELS_NCCL_ABORT_QUEUE_H_
#define KAON_KERNELS_NCCL_ABORT_QUEUE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "kernels/nccl/device_link.h"

namespace kaon::kernels {

class AbortQueue {
 public:
  // The queue and an abort that never returns share the link.
  explicit AbortQueue(std::shared_ptr<DeviceLink> link,
                      absl::Duration patience = absl::Seconds(10));
  // Waits for all aborts, at most `patience` long, and for callbacks that have begun. After that it
  // gives the thread up, with an error in the log, and drops the callbacks.
  ~AbortQueue();

  // Aborts `comm` soon. Calls `aborted` on the queue's thread when its memory is free. If the abort
  // fails, it keeps `aborted` and what that owns, and never calls it, with an error in the log.
  void Add(CommId comm, std::function<void()> aborted);

 private:
  struct Waiting {
    CommId comm = 0;
    std::function<void()> aborted;
  };
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);
  static void Keep(std::vector<Waiting> group);

  const absl::Duration patience_;
  // Shared with the thread, which may outlive the queue.
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_ABORT_QUEUE_H_
