// The thread on which a shard reads and writes checkpoints, so that no step waits for their disk:
// one piece of work after the other. Owned by StepLoop; any thread may post. What waits is bounded
// by who posts: at most one check of a restore and one part of a checkpoint for each plan.
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
  // Stops.
  ~CheckpointThread();

  // Dropped once it is stopped.
  void Post(std::function<void()> work);
  // Drops what waits, and waits for what runs. Idempotent.
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
