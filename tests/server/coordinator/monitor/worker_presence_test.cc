#include "server/coordinator/monitor/worker_presence.h"

#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

WorkerSnapshot Worker(uint32_t rank, uint64_t calls, bool awaits = false) {
  WorkerSnapshot worker;
  worker.rank = rank;
  worker.calls = calls;
  worker.awaits = awaits;
  return worker;
}

TEST(WorkerPresenceTest, CountsWhoWasHeardLately) {
  WorkerPresence presence;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(presence.Note({}, start), 0);
  EXPECT_EQ(presence.Note({Worker(0, 1), Worker(1, 1)}, start), 2);
  EXPECT_EQ(presence.Note({Worker(0, 1), Worker(1, 2)}, start + WorkerPresence::kWindow), 2);
  EXPECT_EQ(presence.Note({Worker(0, 1), Worker(1, 2)}, start + 1.5 * WorkerPresence::kWindow), 1);
  // A finished job has its workers in the list, and none calls.
  EXPECT_EQ(presence.Note({Worker(0, 1), Worker(1, 2)}, start + 3 * WorkerPresence::kWindow), 0);
}

TEST(WorkerPresenceTest, CountsWhoWaits) {
  WorkerPresence presence;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(presence.Note({Worker(3, 1, true)}, start), 1);
  EXPECT_EQ(presence.Note({Worker(3, 1, true)}, start + absl::Hours(1)), 1);
  EXPECT_EQ(presence.Note({Worker(3, 1)}, start + absl::Hours(1) + WorkerPresence::kWindow), 1);
  EXPECT_EQ(presence.Note({Worker(3, 1)}, start + absl::Hours(2)), 0);
}

}  // namespace
}  // namespace kaon::coordinator
