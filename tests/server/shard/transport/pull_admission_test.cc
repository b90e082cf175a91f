#include "server/shard/transport/pull_admission.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/mutex.h"

namespace kaon::shard {
namespace {

using PullId = PullAdmission::PullId;

class PullAdmissionTest : public testing::Test {
 protected:
  void Make(size_t messages, absl::Duration most_unread = absl::Hours(1)) {
    admission_.emplace(PullAdmission::Limits{messages, 1000, most_unread});
  }
  PullId Open(const std::string& peer, uint64_t bytes = 10) {
    const auto pull = admission_->Open(peer, bytes, [this, peer] { Say("cut " + peer); });
    EXPECT_TRUE(pull.ok()) << pull.status();
    return pull.value_or(0);
  }
  bool Begin(PullId pull, const std::string& who) {
    return admission_->BeginMessage(pull, [this, who] { Say("turn of " + who); });
  }
  void Say(const std::string& what) {
    MutexLock lock(mu_);
    said_.push_back(what);
    changed_.NotifyAll();
  }
  // Waits for so many callbacks, and returns them all.
  std::vector<std::string> Said(size_t count) {
    MutexLock lock(mu_);
    while (said_.size() < count) changed_.Wait(mu_);
    return said_;
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
  // Last: its thread calls Say.
  std::optional<PullAdmission> admission_;
};

TEST_F(PullAdmissionTest, APeerGetsHalfOfTheRoomAndPeersTakeTurns) {
  Make(4);
  std::vector<PullId> greedy;
  for (int i = 0; i < 6; ++i) greedy.push_back(Open("greedy"));
  EXPECT_TRUE(Begin(greedy[0], "greedy"));
  EXPECT_TRUE(Begin(greedy[1], "greedy"));
  for (int i = 2; i < 6; ++i) EXPECT_FALSE(Begin(greedy[i], "greedy"));
  const PullId a = Open("a");
  const PullId b = Open("b");
  const PullId c = Open("c");
  EXPECT_TRUE(Begin(a, "a"));
  EXPECT_TRUE(Begin(b, "b"));
  EXPECT_FALSE(Begin(c, "c"));
  admission_->EndMessage(a);
  // The others of `greedy` came first, and have their half.
  EXPECT_EQ(Said(1), std::vector<std::string>({"turn of c"}));
  admission_->EndMessage(greedy[0]);
  EXPECT_EQ(Said(2).back(), "turn of greedy");
  // A pull that ends gives its place up, and leaves no turn behind.
  admission_->Close(greedy[3]);
  admission_->Close(greedy[1]);
  EXPECT_EQ(Said(3).back(), "turn of greedy");
  for (const PullId pull : greedy) admission_->Close(pull);
  for (const PullId pull : {a, b, c}) admission_->Close(pull);
  EXPECT_EQ(admission_->num_pulls(), 0u);
  EXPECT_EQ(admission_->num_messages(), 0u);
}

TEST_F(PullAdmissionTest, RequestsHoldBoundedMemory) {
  Make(4);
  const PullId first = Open("a", 300);
  const auto more = admission_->Open("a", 201, nullptr);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(more.status().message().find(
                "pulls under way hold 300 bytes, 300 of them this peer's, and 201 more"),
            absl::string_view::npos)
      << more.status();
  Open("a", 200);
  // Another peer may have a large one.
  const PullId large = Open("b", 500);
  EXPECT_FALSE(admission_->Open("c", 1, nullptr).ok());
  admission_->Close(large);
  admission_->Close(first);
  Open("c", 700);
  // A single pull is admitted, whatever it holds.
  Make(4);
  Open("a", 5000);
  EXPECT_FALSE(admission_->Open("b", 1, nullptr).ok());
}

TEST_F(PullAdmissionTest, CutsAMessageThatIsNotReadOnlyWhileOthersWait) {
  Make(1, absl::ZeroDuration());
  const PullId unread = Open("slow");
  ASSERT_TRUE(Begin(unread, "slow"));
  // Nobody waits for this one, although others are under way.
  const PullId other = Open("fast");
  EXPECT_EQ(admission_->num_messages(), 1u);
  EXPECT_FALSE(Begin(other, "fast"));
  EXPECT_EQ(Said(1), std::vector<std::string>({"cut slow"}));
  admission_->Close(unread);
  EXPECT_EQ(Said(2).back(), "turn of fast");
}

TEST_F(PullAdmissionTest, GivesPullsAPartOfTheBudget) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(PullAdmission::Share(16 * kMiB).messages, 4u);
  EXPECT_EQ(PullAdmission::Share(224 * kMiB).request_bytes, 7 * kMiB);
  EXPECT_EQ(PullAdmission::Share(uint64_t{1} << 50).messages, 64u);
}

}  // namespace
}  // namespace kaon::shard
