#include "kernels/nccl/link_session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/testing/fake_link.h"

namespace kaon::kernels {
namespace {

using State = LinkSession::State;

// One end of a communicator, with memory of 8 slots of 64 bytes.
struct End {
  explicit End(FakeFabric& fabric) : link(fabric.NewLink()), memory(*link->Allocate(512)) {
    std::memset(memory.data(), 0, memory.size());
  }
  ~End() { link->Free(memory); }
  Region Slot(uint64_t slot) const { return memory.Sub(64 * slot, 64); }
  // Aborts as the owner of a session must.
  void Close() {
    if (session == nullptr) return;
    session->Fail("closed", absl::UnixEpoch());
    if (session->state() == State::kRevoking) session->Advance(absl::InfiniteFuture());
    if (session->state() != State::kAborting) return;
    EXPECT_TRUE(link->Abort({session->comm()}).ok());
    session->OnAborted();
  }

  std::shared_ptr<DeviceLink> link;
  Region memory;
  std::unique_ptr<LinkSession> session;
};

class LinkSessionTest : public testing::Test {
 protected:
  void Start(const FakeFabric::Faults& faults = {}) {
    fabric_->SetFaults(faults);
    const UniqueId id = *shard_.link->NewId();
    int rank = 0;
    for (End* const end : {&shard_, &worker_}) {
      end->session = std::make_unique<LinkSession>(*end->link, options_);
      ASSERT_TRUE(end->session->Start(id, rank++, now_).ok());
    }
  }
  void Connect(const FakeFabric::Faults& faults = {}) {
    Start(faults);
    for (End* const end : {&shard_, &worker_}) {
      while (end->session->state() == State::kConnecting) end->session->Advance(now_);
    }
  }
  void TearDown() override {
    fabric_->ReleaseAborts();
    shard_.Close();
    worker_.Close();
  }
  // Sends slots 0 .. n-1, each filled with its number + 1, tagged 10, 11, ...
  void Transfer(uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      std::memset(worker_.Slot(i).data(), static_cast<int>(i + 1), 64);
      ASSERT_TRUE(worker_.session->Send(10 + i, worker_.Slot(i), now_).ok());
      ASSERT_TRUE(shard_.session->Receive(10 + i, shard_.Slot(i), now_).ok());
    }
  }
  // Advances an end until `n` transfers are done.
  static std::vector<uint64_t> Await(End& end, size_t n, absl::Time now) {
    std::vector<uint64_t> done;
    for (int i = 0; i < 1000 && done.size() < n; ++i) {
      for (const uint64_t tag : end.session->Advance(now)) done.push_back(tag);
    }
    return done;
  }

  const LinkSession::Options options_ = {absl::Seconds(3), absl::Seconds(5), absl::Seconds(2)};
  const std::shared_ptr<FakeFabric> fabric_ = std::make_shared<FakeFabric>();
  End shard_{*fabric_};
  End worker_{*fabric_};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(LinkSessionTest, TransfersInTheOrderInWhichTheyWereAdded) {
  Connect({.polls = 3, .delay = 2});
  Transfer(4);
  EXPECT_EQ(Await(shard_, 4, now_), std::vector<uint64_t>({10, 11, 12, 13}));
  EXPECT_EQ(Await(worker_, 4, now_), std::vector<uint64_t>({10, 11, 12, 13}));
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(shard_.Slot(i).data()[63], std::byte(i + 1));
}

TEST_F(LinkSessionTest, ReportsInOrderWhatIsDoneOutOfOrder) {
  Connect({.reorder = true});
  Transfer(3);
  EXPECT_EQ(Await(shard_, 3, now_), std::vector<uint64_t>({10, 11, 12}));
  EXPECT_EQ(Await(worker_, 3, now_), std::vector<uint64_t>({10, 11, 12}));
}

TEST_F(LinkSessionTest, StartsWhatWasAddedWhileItJoined) {
  Start({.polls = 5});
  Transfer(2);
  EXPECT_EQ(fabric_->counts().transfers, 0u);
  EXPECT_EQ(shard_.session->Advance(now_), std::vector<uint64_t>());
  // The ends take turns: neither is ready before the other has joined.
  std::vector<uint64_t> done;
  for (int i = 0; i < 20; ++i) {
    worker_.session->Advance(now_);
    for (const uint64_t tag : shard_.session->Advance(now_)) done.push_back(tag);
  }
  EXPECT_EQ(done, std::vector<uint64_t>({10, 11}));
}

TEST_F(LinkSessionTest, EndsWhenTheOtherEndDoesNotJoinInTime) {
  fabric_->SetFaults({});
  shard_.session = std::make_unique<LinkSession>(*shard_.link, options_);
  ASSERT_TRUE(shard_.session->Start(*shard_.link->NewId(), 0, now_).ok());
  shard_.session->Advance(now_ + absl::Seconds(2.9));
  EXPECT_FALSE(shard_.session->ended());
  shard_.session->Advance(now_ + absl::Seconds(3));
  // Nothing is revoked that was never joined.
  EXPECT_EQ(shard_.session->state(), State::kAborting);
  EXPECT_EQ(fabric_->counts().revokes, 0u);
  EXPECT_EQ(shard_.session->failure(),
            absl::UnavailableError("NCCL: the other end did not join within 3s"));
}

TEST_F(LinkSessionTest, RevokesATransferThatIsNotDoneInTimeAndThenAborts) {
  Connect({.never_done = true});
  Transfer(2);
  shard_.session->Advance(now_ + absl::Seconds(4.9));
  EXPECT_EQ(shard_.session->state(), State::kReady);
  now_ += absl::Seconds(5);
  fabric_->SetFaults({.polls = 0, .never_done = true});
  shard_.session->Advance(now_);
  EXPECT_EQ(shard_.session->state(), State::kRevoking);
  EXPECT_EQ(fabric_->counts().revokes, 1u);
  EXPECT_EQ(shard_.session->failure(),
            absl::UnavailableError("NCCL: no transfer was done within 5s, 2 are under way"));
  shard_.session->Advance(now_);
  EXPECT_EQ(shard_.session->state(), State::kAborting);
  EXPECT_EQ(shard_.session->Send(1, shard_.Slot(0), now_), shard_.session->failure());
}

TEST_F(LinkSessionTest, EachDoneTransferStartsTheDeadlineAgain) {
  Connect();
  Transfer(1);
  now_ += absl::Seconds(4);
  EXPECT_EQ(Await(shard_, 1, now_).size(), 1u);
  fabric_->SetFaults({.never_done = true});
  ASSERT_TRUE(shard_.session->Receive(11, shard_.Slot(1), now_).ok());
  shard_.session->Advance(now_ + absl::Seconds(4.9));
  EXPECT_FALSE(shard_.session->ended());
  shard_.session->Advance(now_ + absl::Seconds(5));
  EXPECT_TRUE(shard_.session->ended());
}

TEST_F(LinkSessionTest, AnIdleSessionStays) {
  Connect();
  shard_.session->Advance(now_ + absl::Hours(10));
  EXPECT_EQ(shard_.session->state(), State::kReady);
  ASSERT_TRUE(shard_.session->Receive(1, shard_.Slot(0), now_ + absl::Hours(10)).ok());
  shard_.session->Advance(now_ + absl::Hours(10));
  EXPECT_EQ(shard_.session->state(), State::kReady);
}

TEST_F(LinkSessionTest, AbortsThoughTheRevokeNeverEnds) {
  Connect();
  fabric_->SetFaults({.polls = 1000000});
  shard_.session->Fail("given up", now_);
  EXPECT_EQ(shard_.session->failure(), absl::UnavailableError("NCCL: given up"));
  shard_.session->Advance(now_ + absl::Seconds(1.9));
  EXPECT_EQ(shard_.session->state(), State::kRevoking);
  shard_.session->Advance(now_ + absl::Seconds(2));
  EXPECT_EQ(shard_.session->state(), State::kAborting);
}

TEST_F(LinkSessionTest, SeesTheOtherRanksDeathAndKeepsTheFirstReason) {
  Connect();
  fabric_->KillRank(1);
  shard_.session->Advance(now_);
  EXPECT_EQ(shard_.session->failure(),
            absl::UnavailableError("NCCL: the connection was closed by the other rank"));
  shard_.session->Fail("later", now_);
  EXPECT_EQ(shard_.session->failure().message(),
            "NCCL: the connection was closed by the other rank");
}

TEST_F(LinkSessionTest, WhatWasDoneBeforeAFailureCounts) {
  Connect({.fail_at = 3});
  Transfer(2);
  EXPECT_TRUE(worker_.session->Send(12, worker_.Slot(2), now_).ok());
  EXPECT_TRUE(shard_.session->Receive(12, shard_.Slot(2), now_).ok());
  EXPECT_EQ(Await(shard_, 3, now_), std::vector<uint64_t>({10, 11}));
  EXPECT_TRUE(shard_.session->ended());
}

TEST_F(LinkSessionTest, ALinkThatCannotInitIsClosedAtOnce) {
  fabric_->SetFaults({.init = absl::FailedPreconditionError("no driver")});
  for (End* const end : {&shard_, &worker_}) {
    end->session = std::make_unique<LinkSession>(*end->link, options_);
    EXPECT_EQ(end->session->Start({}, 0, now_), absl::UnavailableError("no driver"));
    EXPECT_EQ(end->session->state(), State::kClosed);
  }
}

}  // namespace
}  // namespace kaon::kernels
