// Tests how pushes of one lane affect each other, and receives. nccl_shard_channel_test and
// nccl_pull_test have everything else.
#include "client/transport/nccl_lane.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing/fake_link.h"

namespace kaon::client {
namespace {

using kernels::FakeFabric;
using Turn = NcclLane::Turn;

class User : public NcclLaneUser {
 public:
  void OnTurn() override { Note(); }
  void OnSessionEnded(const absl::Status&) override { Note(); }
  void AwaitCall() {
    MutexLock lock(mu_);
    while (calls_ == 0) changed_.Wait(mu_);
    calls_ = 0;
  }

 private:
  void Note() {
    MutexLock lock(mu_);
    ++calls_;
    changed_.NotifyAll();
  }
  Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

class NcclLaneTest : public testing::Test {
 protected:
  void Start(uint32_t slots, absl::Duration retry_after = absl::ZeroDuration()) {
    NcclLane::Options options;
    options.name = "test";
    options.open = [this, slots] { return Open(slots); };
    options.link = fabric_->NewLink();
    options.aborts = std::make_shared<kernels::AbortQueue>(options.link);
    options.session.revoke_timeout = absl::ZeroDuration();
    options.retry_after = retry_after;
    lane_ = std::make_unique<NcclLane>(std::move(options));
  }
  ~NcclLaneTest() override {
    lane_.reset();
    MutexLock lock(mu_);
    for (const kernels::CommId comm : comms_) static_cast<void>(shard_->Abort({comm}));
  }
  // The shard joins at once, and receives nothing.
  absl::StatusOr<v1::OpenNcclSessionResponse> Open(uint32_t slots) {
    const kernels::UniqueId id = *shard_->NewId();
    const auto comm = shard_->Init(id, 0);
    if (!comm.ok()) return comm.status();
    MutexLock lock(mu_);
    comms_.push_back(*comm);
    v1::OpenNcclSessionResponse opened;
    opened.set_session(comms_.size());
    opened.set_unique_id(id.data(), id.size());
    opened.set_slots(slots);
    opened.set_slot_bytes(1 << 20);
    return opened;
  }
  Turn AwaitTurn(const std::shared_ptr<User>& user, absl::Status* why = nullptr) {
    absl::Status ignored;
    while (true) {
      const Turn turn = lane_->TakeTurn(user, why != nullptr ? why : &ignored);
      if (turn != Turn::kLater) return turn;
      user->AwaitCall();
    }
  }
  std::vector<ChunkToSend> Chunks(kernels::FakeEvent* event = nullptr) {
    ChunkToSend chunk;
    chunk.payload = bytes_;
    chunk.device = 0;
    chunk.ready_event = event;
    return {chunk};
  }

  const std::shared_ptr<FakeFabric> fabric_ = std::make_shared<FakeFabric>();
  const std::shared_ptr<kernels::DeviceLink> shard_ = fabric_->NewLink();
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(8, std::byte{5});
  Mutex mu_;
  CondVar changed_;
  std::vector<kernels::CommId> comms_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<NcclLane> lane_;
  const std::shared_ptr<User> first_ = std::make_shared<User>();
  const std::shared_ptr<User> second_ = std::make_shared<User>();
  const std::shared_ptr<User> third_ = std::make_shared<User>();
  const std::shared_ptr<User> fourth_ = std::make_shared<User>();
};

TEST_F(NcclLaneTest, APushThatIsReplacedDuringItsCopySendsNothing) {
  Start(/*slots=*/2);
  ASSERT_EQ(AwaitTurn(first_), Turn::kNow);
  kernels::FakeEvent event;
  event.work = [this] { EXPECT_EQ(AwaitTurn(second_), Turn::kNow); };
  EXPECT_TRUE(absl::IsUnavailable(lane_->Send(first_.get(), Chunks(&event)).status()));
  const auto sent = lane_->Send(second_.get(), Chunks());
  ASSERT_TRUE(sent.ok()) << sent.status();
  // The shard would refuse a gap.
  EXPECT_EQ(sent->sequence(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(lane_->Send(first_.get(), Chunks()).status()));
}

TEST_F(NcclLaneTest, TheSlotOfAReplacedPushIsTheNextOnes) {
  Start(/*slots=*/1);
  ASSERT_EQ(AwaitTurn(first_), Turn::kNow);
  kernels::FakeEvent event;
  event.work = [this] {
    absl::Status why;
    EXPECT_EQ(lane_->TakeTurn(second_, &why), Turn::kLater);
  };
  EXPECT_FALSE(lane_->Send(first_.get(), Chunks(&event)).ok());
  second_->AwaitCall();
  EXPECT_EQ(AwaitTurn(second_), Turn::kNow);
}

TEST_F(NcclLaneTest, AFailedPushRefusesTheNextOneUnlessItWasReplaced) {
  Start(/*slots=*/2, /*retry_after=*/absl::Hours(1));
  fabric_->SetFaults({.eager = true});
  ASSERT_EQ(AwaitTurn(first_), Turn::kNow);
  ASSERT_TRUE(lane_->Send(first_.get(), Chunks()).ok());
  ASSERT_EQ(AwaitTurn(second_), Turn::kNow);
  lane_->Release(first_.get(), absl::UnavailableError("replaced"));
  ASSERT_TRUE(lane_->Send(second_.get(), Chunks()).ok());
  lane_->Release(second_.get(), absl::CancelledError("by the caller"));
  // More than two sessions that are not freed yet are another reason to refuse.
  while (fabric_->counts().allocations > 0) std::this_thread::yield();
  ASSERT_EQ(AwaitTurn(third_), Turn::kNow);
  ASSERT_TRUE(lane_->Send(third_.get(), Chunks()).ok());
  lane_->Release(third_.get(), absl::UnavailableError("the shard's end failed"));
  absl::Status why;
  EXPECT_EQ(AwaitTurn(fourth_, &why), Turn::kNever);
  EXPECT_EQ(why, absl::UnavailableError("the shard's end failed"));
}

TEST_F(NcclLaneTest, AnEarlierPushDoesNotTakeTheTurnOfALaterOne) {
  Start(/*slots=*/2);
  fabric_->SetFaults({.eager = true});
  ASSERT_EQ(AwaitTurn(second_), Turn::kNow);
  ASSERT_TRUE(lane_->Send(second_.get(), Chunks()).ok());
  absl::Status why;
  EXPECT_EQ(lane_->TakeTurn(first_, &why), Turn::kLater);
  // The session is the same.
  ASSERT_EQ(AwaitTurn(second_), Turn::kNow);
  const auto sent = lane_->Send(second_.get(), Chunks());
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->sequence(), 2u);
  lane_->Release(second_.get(), absl::OkStatus());
  first_->AwaitCall();
  EXPECT_EQ(AwaitTurn(first_), Turn::kNow);
}

TEST_F(NcclLaneTest, APullThatFailsBeforeItUsedItsSessionEndsIt) {
  Start(/*slots=*/2);
  ASSERT_EQ(AwaitTurn(first_), Turn::kNow);
  ASSERT_TRUE(lane_->Join(first_.get()).ok());
  lane_->Release(first_.get(), absl::CancelledError("by the caller"));
  EXPECT_TRUE(lane_->has_session());
  ASSERT_EQ(AwaitTurn(second_), Turn::kNow);
  ASSERT_TRUE(lane_->Join(second_.get()).ok());
  lane_->Release(second_.get(), absl::UnavailableError("the shard has no such session"));
  EXPECT_FALSE(lane_->has_session());
  // Nobody is refused, and the next pull has a new session.
  ASSERT_EQ(AwaitTurn(third_), Turn::kNow);
  const auto joined = lane_->Join(third_.get());
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->session, 2u);
}

TEST_F(NcclLaneTest, ReceivesTheNextTransferAndNoOther) {
  Start(/*slots=*/1);
  ASSERT_EQ(AwaitTurn(first_), Turn::kNow);
  const auto joined = lane_->Join(first_.get());
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->session, 1u);
  EXPECT_EQ(joined->slots, 1u);
  EXPECT_TRUE(lane_->has_session());
  std::vector<std::byte> arrived;
  const auto receive = [&](uint64_t session, uint64_t sequence, uint64_t bytes) {
    v1::NcclTransfer transfer;
    transfer.set_session(session);
    transfer.set_sequence(sequence);
    return lane_->Receive(first_.get(), transfer, bytes,
                          [&](kernels::ConstRegion memory) -> std::function<void()> {
                            MutexLock lock(mu_);
                            arrived.assign(memory.data(), memory.data() + memory.size());
                            changed_.NotifyAll();
                            return nullptr;
                          });
  };
  EXPECT_TRUE(absl::IsInternal(receive(2, 1, 8)));
  EXPECT_TRUE(absl::IsInternal(receive(1, 2, 8)));
  EXPECT_TRUE(absl::IsInternal(receive(1, 1, 0)));
  EXPECT_TRUE(absl::IsInternal(receive(1, 1, (1 << 20) + 1)));
  ASSERT_TRUE(receive(1, 1, 8).ok());
  EXPECT_TRUE(absl::IsInternal(receive(1, 2, 8))) << "there is no other slot";
  EXPECT_TRUE(absl::IsUnavailable(lane_->Join(second_.get()).status()));
  const kernels::Region memory = *shard_->Allocate(8);
  shard_->CopyIn(bytes_, memory);
  MutexLock lock(mu_);
  while (shard_->Poll(comms_[0]).kind != kernels::CommState::Kind::kReady) continue;
  const auto sent = shard_->Send(comms_[0], memory);
  ASSERT_TRUE(sent.ok()) << sent.status();
  while (arrived.empty()) changed_.Wait(mu_);
  EXPECT_EQ(arrived, bytes_);
  while (!shard_->IsDone(comms_[0], *sent)) continue;
  shard_->Free(memory);
}

}  // namespace
}  // namespace kaon::client
