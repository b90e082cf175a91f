#include "kernels/nccl/abort_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "tests/testing/fake_link.h"

namespace kaon::kernels {
namespace {

class AbortQueueTest : public testing::Test {
 protected:
  CommId NewComm() { return *link_->Init(*link_->NewId(), 0); }
  std::function<void()> Count() {
    return [this] {
      MutexLock lock(mu_);
      ++aborted_;
      changed_.NotifyAll();
    };
  }
  void Await(int aborted) {
    MutexLock lock(mu_);
    while (aborted_ < aborted) changed_.Wait(mu_);
  }

  const std::shared_ptr<FakeFabric> fabric_ = std::make_shared<FakeFabric>();
  const std::shared_ptr<DeviceLink> link_ = fabric_->NewLink();
  Mutex mu_;
  CondVar changed_;
  int aborted_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_F(AbortQueueTest, AbortsWhatWaitsAsOneGroup) {
  AbortQueue queue(link_);
  fabric_->SetFaults({.abort_hangs = true});
  queue.Add(NewComm(), Count());
  fabric_->AwaitAbort();
  for (int i = 0; i < 3; ++i) queue.Add(NewComm(), Count());
  {
    MutexLock lock(mu_);
    EXPECT_EQ(aborted_, 0);
  }
  fabric_->ReleaseAborts();
  Await(4);
  EXPECT_EQ(fabric_->counts().abort_groups, 2u);
}

TEST_F(AbortQueueTest, AbortsEverythingBeforeItEnds) {
  {
    AbortQueue queue(link_);
    for (int i = 0; i < 5; ++i) queue.Add(NewComm(), Count());
  }
  MutexLock lock(mu_);
  EXPECT_EQ(aborted_, 5);
}

TEST_F(AbortQueueTest, WaitsForACallbackThatHasBegunBeyondItsPatience) {
  bool began = false;
  bool ended = false;
  {
    AbortQueue queue(link_, absl::Milliseconds(1));
    queue.Add(NewComm(), [&] {
      MutexLock lock(mu_);
      began = true;
      changed_.NotifyAll();
      // Time for a destructor that does not wait to return.
      const absl::Time limit = SteadyNow() + absl::Milliseconds(200);
      while (SteadyNow() < limit) changed_.WaitFor(mu_, limit - SteadyNow());
      ended = true;
    });
    MutexLock lock(mu_);
    while (!began) changed_.Wait(mu_);
  }
  MutexLock lock(mu_);
  EXPECT_TRUE(ended);
}

TEST_F(AbortQueueTest, KeepsWhatAFailedAbortMayStillUse) {
  const auto memory = std::make_shared<int>(1);
  fabric_->SetFaults({.abort = absl::FailedPreconditionError("the driver is gone")});
  {
    AbortQueue queue(link_);
    queue.Add(NewComm(), [memory] { ADD_FAILURE() << "its memory is in use"; });
  }
  EXPECT_EQ(memory.use_count(), 2);
}

TEST_F(AbortQueueTest, GivesUpAnAbortThatHangs) {
  fabric_->SetFaults({.abort_hangs = true});
  {
    AbortQueue queue(link_, absl::Milliseconds(20));
    queue.Add(NewComm(), [] { ADD_FAILURE() << "the owner is gone"; });
    fabric_->AwaitAbort();
  }
  fabric_->ReleaseAborts();
  // The thread that was given up still aborts.
  while (fabric_->counts().aborted == 0) {
    MutexLock lock(mu_);
    changed_.WaitFor(mu_, absl::Milliseconds(1));
  }
}

}  // namespace
}  // namespace kaon::kernels
