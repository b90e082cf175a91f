#include "server/shard/checkpoint_thread.h"

#include <pthread.h>

#include <utility>

namespace kaon::shard {

CheckpointThread::CheckpointThread() : thread_([this] { Run(); }) {}

CheckpointThread::~CheckpointThread() { Stop(); }

void CheckpointThread::Post(std::function<void()> work) {
  MutexLock lock(mu_);
  if (stopping_) return;
  waiting_.push_back(std::move(work));
  wake_.NotifyOne();
}

void CheckpointThread::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    dropped.swap(waiting_);
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CheckpointThread::Run() {
  // Operators and tests/crash find the thread by this name; 15 characters at most.
  pthread_setname_np(pthread_self(), "checkpoints");
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) wake_.Wait(mu_);
      if (stopping_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace kaon::shard
