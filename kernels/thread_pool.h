// The compute threads of a backend: one pool for everything, so that no two pools take the cores
// from each other (performance.md section 0). Owned by the backend's factory and shared by the
// backend and its matrix products; ParallelFor may be called from several threads at once.
#ifndef KAON_KERNELS_THREAD_POOL_H_
#define KAON_KERNELS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/mutex.h"

namespace kaon::kernels {

class ThreadPool {
 public:
  // `threads` >= 1 (CHECK), the callers of ParallelFor counted as one of them.
  explicit ThreadPool(int threads);
  // Not while a call runs.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // task(i) once for each i in [0, n), in no fixed order and on any thread; all are done when it
  // returns. No result may depend on who runs what: tasks write to disjoint memory, and how work is
  // cut into tasks depends on its size alone, never on `threads`. Calls from several threads go one
  // after another; from within a task, the tasks run in the calling thread.
  void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> task);

 private:
  // Of one call. Workers that saw it are counted in `users_`: it is the caller's memory.
  struct Work {
    absl::FunctionRef<void(int64_t)> task;
    int64_t n;
    std::atomic<int64_t> next{0};
  };

  void Run();
  // Blocks until there is work of another generation than `done`, which becomes its; null when the
  // pool ends. The work stays until Leave().
  Work* Join(uint64_t& done);
  void Leave();
  static void RunTasks(Work& work);

  // Held by the call whose work is being done.
  Mutex calling_;
  Mutex mu_;
  CondVar changed_;
  Work* work_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Tells a new work from one that a worker has done its part of.
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_THREAD_POOL_H_
