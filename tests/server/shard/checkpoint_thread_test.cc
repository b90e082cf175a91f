#include "server/shard/checkpoint_thread.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::shard {
namespace {

// Opened once.
class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mu_);
    while (!open_) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(CheckpointThreadTest, DoesOnePieceOfWorkAfterTheOther) {
  CheckpointThread thread;
  std::vector<int> done;
  Gate last;
  thread.Post([&] { done.push_back(1); });
  thread.Post([&] {
    done.push_back(2);
    last.Open();
  });
  last.Wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

TEST(CheckpointThreadTest, StopWaitsForWhatRunsAndDropsTheRest) {
  CheckpointThread thread;
  Gate started;
  bool finished = false;
  bool dropped = true;
  thread.Post([&] {
    started.Open();
    finished = true;
  });
  started.Wait();
  thread.Stop();
  EXPECT_TRUE(finished);
  thread.Post([&] { dropped = false; });
  thread.Stop();
  EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace kaon::shard
