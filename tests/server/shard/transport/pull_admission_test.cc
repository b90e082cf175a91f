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
  // Opens a pull of `peer`, on a connection of its own unless `connection` names one.
  PullId Open(const std::string& peer, uint64_t bytes = 10, std::string connection = "") {
    if (connection.empty()) connection = std::to_string(++num_connections_);
    const auto pull =
        admission_->Open({peer, connection}, bytes, [this, peer] { Say("cut " + peer); });
    EXPECT_TRUE(pull.ok()) << pull.status();
    return pull.value_or(0);
  }
  bool Begin(PullId pull, const std::string& who) {
    return admission_->BeginMessage(pull, [this, who] { Say("turn of " + who); });
  }
  // Lets the connection "of `peer`" read a message.
  void MakeReader(const std::string& peer) {
    const PullId pull = Open(peer, 10, "of " + peer);
    EXPECT_TRUE(Begin(pull, peer));
    admission_->EndMessage(pull);
    admission_->Close(pull);
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

  int num_connections_ = 0;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
  // Last: its thread calls Say.
  std::optional<PullAdmission> admission_;
};

TEST_F(PullAdmissionTest, APeerGetsHalfOfTheRoomAndPeersTakeTurns) {
  Make(4);
  MakeReader("greedy");
  std::vector<PullId> greedy;
  for (int i = 0; i < 6; ++i) greedy.push_back(Open("greedy", 10, "of greedy"));
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
  const auto more = admission_->Open({"a", "one"}, 201, nullptr);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(more.status().message().find(
                "pulls under way hold 300 bytes, 300 of them this peer's, and 201 more"),
            absl::string_view::npos)
      << more.status();
  Open("a", 200);
  // Another peer may have a large one.
  const PullId large = Open("b", 500);
  EXPECT_FALSE(admission_->Open({"c", "one"}, 1, nullptr).ok());
  admission_->Close(large);
  admission_->Close(first);
  Open("c", 700);
  // A single pull is admitted, whatever it holds.
  Make(4);
  Open("a", 5000);
  EXPECT_FALSE(admission_->Open({"b", "one"}, 1, nullptr).ok());
}

TEST_F(PullAdmissionTest, CutsAMessageThatIsNotReadOnceAnotherWaits) {
  Make(1, absl::ZeroDuration());
  const PullId unread = Open("slow");
  ASSERT_TRUE(Begin(unread, "slow"));
  const PullId other = Open("fast");
  EXPECT_EQ(admission_->num_messages(), 1u);
  EXPECT_FALSE(Begin(other, "fast"));
  EXPECT_EQ(Said(1), std::vector<std::string>({"cut slow"}));
  admission_->Close(unread);
  EXPECT_EQ(Said(2).back(), "turn of fast");
}

TEST_F(PullAdmissionTest, ConnectionsOfAPeerThatReadGoBeforeThoseThatDoNot) {
  Make(8);
  MakeReader("a");
  // Connections that have read nothing get half of the room of their peer.
  std::vector<PullId> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(Open("a"));
  EXPECT_TRUE(Begin(silent[0], "silent"));
  EXPECT_TRUE(Begin(silent[1], "silent"));
  for (int i = 2; i < 10; ++i) EXPECT_FALSE(Begin(silent[i], "silent"));
  // So one that reads does not wait, however many messages it wants.
  const PullId reads = Open("a", 10, "of a");
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Begin(reads, "reader"));
    admission_->EndMessage(reads);
  }
  // One that waits goes first.
  std::vector<PullId> more;
  for (int i = 0; i < 3; ++i) more.push_back(Open("a", 10, "of a"));
  EXPECT_TRUE(Begin(more[0], "reader"));
  EXPECT_TRUE(Begin(more[1], "reader"));
  EXPECT_FALSE(Begin(more[2], "reader"));
  admission_->EndMessage(silent[0]);
  EXPECT_EQ(Said(1), std::vector<std::string>({"turn of reader"}));
  admission_->EndMessage(more[0]);
  EXPECT_EQ(Said(2).back(), "turn of silent");
}

TEST_F(PullAdmissionTest, AConnectionThatReadsTooLateWaitsBehindOthers) {
  Make(4, absl::Nanoseconds(-1));
  const PullId late = Open("a");
  EXPECT_TRUE(Begin(late, "late"));
  admission_->EndMessage(late);
  EXPECT_TRUE(Begin(Open("a"), "other"));
  EXPECT_FALSE(Begin(late, "late"));
}

TEST_F(PullAdmissionTest, GivesPullsAPartOfTheBudget) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(PullAdmission::Share(16 * kMiB).messages, 4u);
  EXPECT_EQ(PullAdmission::Share(224 * kMiB).request_bytes, 7 * kMiB);
  EXPECT_EQ(PullAdmission::Share(uint64_t{1} << 50).messages, 64u);
}

}  // namespace
}  // namespace kaon::shard
