// The coordinator's checkpoint directory and the one thread that works on it: reading a checkpoint
// takes as long as the disk does, and the state machine must not wait for it. Owned by
// CoordinatorServer; any thread may call it. The queue is bounded.
#ifndef KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_KEEPER_H_
#define KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_KEEPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kernels/mutex.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/checkpoint/checkpoint_finisher.h"
#include "server/coordinator/machine/actions.h"
#include "server/disk/posix_directory.h"

namespace kaon::coordinator {

class CheckpointKeeper {
 public:
  // The directory, or why there is none.
  using Task = std::function<void(absl::StatusOr<checkpoint::CheckpointDirectory*> directory)>;

  // Work that may wait for the thread.
  static constexpr size_t kMaxTasks = 16;

  // Empty: there is no directory, and every task is told so. FAILED_PRECONDITION naming `path` when
  // it cannot be opened.
  static absl::StatusOr<std::unique_ptr<CheckpointKeeper>> Create(const std::string& path);
  // Stops.
  ~CheckpointKeeper();

  // `task` runs once: on the thread, or at once with FAILED_PRECONDITION without a directory,
  // RESOURCE_EXHAUSTED when too many wait, UNAVAILABLE once it is shutting down.
  void Run(Task task);

  // As CheckpointFinisher::Finish; `done` as a task.
  void Finish(FinishCheckpoint finish, uint64_t keep,
              std::function<void(const absl::StatusOr<v1::CheckpointSummary>&)> done);

  // Ends what is queued with UNAVAILABLE, and waits for what runs. Idempotent.
  void Stop();

 private:
  explicit CheckpointKeeper(std::unique_ptr<disk::PosixDirectory> files);

  void Work();

  // Constant after construction; used by the thread alone.
  const std::unique_ptr<disk::PosixDirectory> files_;
  // Absent without one; used by the thread alone.
  std::optional<checkpoint::CheckpointDirectory> directory_;
  std::optional<CheckpointFinisher> finisher_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CHECKPOINT_CHECKPOINT_KEEPER_H_
