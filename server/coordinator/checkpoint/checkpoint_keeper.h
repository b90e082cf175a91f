// Owns the coordinator's checkpoint directory and the one thread that works on it. Reading a
// checkpoint waits for the disk, and the state machine must not wait. The task queue is bounded.
// Owned by CoordinatorServer; any thread may call it.
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
  // Receives the directory, or the reason why there is none.
  using Task = std::function<void(absl::StatusOr<checkpoint::CheckpointDirectory*> directory)>;

  // Upper bound on the tasks that wait for the thread.
  static constexpr size_t kMaxTasks = 16;

  // Opens the directory at `path`. If `path` is empty, there is no directory and every task
  // receives that error. FAILED_PRECONDITION naming `path` if it cannot be opened.
  static absl::StatusOr<std::unique_ptr<CheckpointKeeper>> Create(const std::string& path);
  // Calls Stop.
  ~CheckpointKeeper();

  // Runs `task` exactly once, normally on the thread. Runs it at once with an error instead:
  // FAILED_PRECONDITION without a directory, RESOURCE_EXHAUSTED if too many tasks wait, UNAVAILABLE
  // after Stop.
  void Run(Task task);

  // Runs CheckpointFinisher::Finish as a task. Calls `done` with the error if the task cannot run.
  void Finish(FinishCheckpoint finish, uint64_t keep,
              std::function<void(const absl::StatusOr<v1::CheckpointSummary>&)> done);

  // Ends queued tasks with UNAVAILABLE and waits for the running one. Idempotent.
  void Stop();

 private:
  explicit CheckpointKeeper(std::unique_ptr<disk::PosixDirectory> files);

  void Work();

  // Constant after construction; only the thread uses it.
  const std::unique_ptr<disk::PosixDirectory> files_;
  // Absent without a directory; only the thread uses it.
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
