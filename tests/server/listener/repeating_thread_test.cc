#include "server/listener/repeating_thread.h"

#include <gtest/gtest.h>

#include "kernels/mutex.h"

namespace kaon::listener {
namespace {

TEST(RepeatingThreadTest, LooksAgainUntilItIsDestroyed) {
  Mutex mu;
  CondVar changed;
  int looks = 0;
  {
    const RepeatingThread thread(absl::ZeroDuration(), [&] {
      MutexLock lock(mu);
      changed.NotifyAll();
      return ++looks < 3 ? absl::Microseconds(1) : absl::InfiniteDuration();
    });
    MutexLock lock(mu);
    while (looks < 3) changed.Wait(mu);
  }
  EXPECT_EQ(looks, 3);
}

TEST(RepeatingThreadTest, EndsBeforeItsFirstLook) {
  bool looked = false;
  {
    const RepeatingThread thread(absl::InfiniteDuration(), [&looked] {
      looked = true;
      return absl::InfiniteDuration();
    });
  }
  EXPECT_FALSE(looked);
}

}  // namespace
}  // namespace kaon::listener
