#include "kernels/cpu/thread_pool.h"

#include <glog/logging.h>

namespace kaon::kernels {

namespace {

// Set in a thread that runs tasks: nested calls run their tasks themselves.
thread_local bool in_task = false;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1) << threads << " threads, must be at least 1";
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunTasks(Work& work) {
  in_task = true;
  for (int64_t i = work.next++; i < work.n; i = work.next++) work.task(i);
  in_task = false;
}

void ThreadPool::ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> task) {
  if (n <= 1 || workers_.empty() || in_task) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  MutexLock call(calling_);
  Work work{task, n};
  {
    MutexLock lock(mu_);
    work_ = &work;
    ++generation_;
    changed_.NotifyAll();
  }
  RunTasks(work);
  MutexLock lock(mu_);
  // No other worker can join this work, and all its tasks have begun. Wait for the workers that
  // still run one.
  work_ = nullptr;
  while (users_ > 0) changed_.Wait(mu_);
}

ThreadPool::Work* ThreadPool::Join(uint64_t& done) {
  MutexLock lock(mu_);
  while (!stopping_ && (work_ == nullptr || generation_ == done)) changed_.Wait(mu_);
  if (stopping_) return nullptr;
  done = generation_;
  ++users_;
  return work_;
}

void ThreadPool::Leave() {
  MutexLock lock(mu_);
  --users_;
  changed_.NotifyAll();
}

void ThreadPool::Run() {
  uint64_t done = 0;
  while (Work* work = Join(done)) {
    RunTasks(*work);
    Leave();
  }
}

}  // namespace kaon::kernels
