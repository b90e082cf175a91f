// Thread on which a shard reads and writes checkpoints, one piece of work after the other: no step
// waits for their disk. Owned by StepLoop; any thread may post. The queue is bounded by StepLoop,
// which posts at most one check of a restore and one part of a checkpoint for each plan.
#ifndef KAON_SERVER_SHARD_CHECKPOINT_THREAD_H_
#define KAON_SERVER_SHARD_CHECKPOINT_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::shard {

class CheckpointThread {
 public:
  CheckpointThread();
  // Calls Stop.
  ~CheckpointThread();

  // Queues `work`; drops it after Stop.
  void Post(std::function<void()> work);
  // Drops the queue, and blocks until the running work ends. Idempotent.
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_CHECKPOINT_THREAD_H_
