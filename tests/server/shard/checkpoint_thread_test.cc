#include "server/shard/checkpoint_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace kaon::shard {
namespace {

TEST(CheckpointThreadTest, DoesOnePieceOfWorkAfterTheOther) {
  CheckpointThread thread;
  std::vector<int> done;
  std::promise<void> last;
  thread.Post([&] { done.push_back(1); });
  thread.Post([&] {
    done.push_back(2);
    last.set_value();
  });
  last.get_future().wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

TEST(CheckpointThreadTest, StopWaitsForWhatRunsAndDropsTheRest) {
  CheckpointThread thread;
  std::promise<void> started;
  bool finished = false;
  bool dropped = true;
  thread.Post([&] {
    started.set_value();
    finished = true;
  });
  started.get_future().wait();
  thread.Stop();
  EXPECT_TRUE(finished);
  thread.Post([&] { dropped = false; });
  thread.Stop();
  EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace kaon::shard
