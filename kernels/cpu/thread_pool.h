// The compute threads of a backend: one pool for everything, so that no two pools compete for the
// cores (performance.md section 0). The backend's factory owns it; the backend and its matrix
// products share it. Several threads may call ParallelFor concurrently.
#ifndef KAON_KERNELS_CPU_THREAD_POOL_H_
#define KAON_KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/mutex.h"

namespace kaon::kernels {

class ThreadPool {
 public:
  // `threads` >= 1 (CHECK) includes the thread that calls ParallelFor.
  explicit ThreadPool(int threads);
  // No call may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) once for each i in [0, n), in no fixed order and on any thread; returns when all
  // are done. No result may depend on which thread runs a task. So tasks write to disjoint memory,
  // and the division into tasks depends on the size alone, never on `threads`.
  // Calls from several threads run one after another. A call from within a task runs its tasks in
  // the calling thread.
  void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> task);

 private:
  // Work of one call, in the caller's memory. `users_` counts the workers that have seen it.
  struct Work {
    absl::FunctionRef<void(int64_t)> task;
    int64_t n;
    std::atomic<int64_t> next{0};
  };

  void Run();
  // Blocks until there is work of another generation than `done`, and sets `done` to that
  // generation. Returns null when the pool ends. The work stays valid until Leave().
  Work* Join(uint64_t& done);
  void Leave();
  static void RunTasks(Work& work);

  // Held by the call that is running.
  Mutex calling_;
  Mutex mu_;
  CondVar changed_;
  Work* work_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Tells new work from work whose share this worker has already done.
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_THREAD_POOL_H_
