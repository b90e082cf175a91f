#include "proto/shm_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "proto/local_socket.h"

namespace kaon::proto {
namespace {

constexpr size_t kRingBytes = 64 << 10;
const std::string kToken(kShmTokenBytes, 't');

class ShmLinkTest : public testing::Test {
 protected:
  ShmLinkTest()
      : address_("@kaon-shm-link-test-" + std::to_string(getpid())),
        listener_(ListenLocal(address_).value()) {}

  // A connection on which the token has been presented.
  Descriptor Accept() {
    Descriptor accepted;
    // ListenLocal's do not block.
    while (!accepted.valid()) accepted = Descriptor(accept(listener_.get(), nullptr, nullptr));
    char token[kShmTokenBytes];
    EXPECT_EQ(recv(accepted.get(), token, sizeof(token), MSG_WAITALL),
              static_cast<ssize_t>(kShmTokenBytes));
    return accepted;
  }

  void Connect() {
    std::thread serving([&] { shard_ = ShmLink::Serve(Accept(), kRingBytes).value(); });
    auto connected = ShmLink::Connect(address_, kToken);
    serving.join();
    ASSERT_TRUE(connected.ok()) << connected.status();
    worker_ = *std::move(connected);
  }

  std::string address_;
  Descriptor listener_;
  std::unique_ptr<ShmLink> shard_;
  std::unique_ptr<ShmLink> worker_;
};

TEST_F(ShmLinkTest, CarriesRecordsBothWays) {
  Connect();
  std::vector<std::byte> body;
  ASSERT_TRUE(worker_->Write({0, 1, 2, 3}, "question").value());
  ASSERT_TRUE(shard_->reader().Take(&body).value().has_value());
  ASSERT_TRUE(shard_->Write({0, 4, 2, 0}, "answer").value());
  const auto record = worker_->reader().Take(&body).value();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->header.kind, 4u);
  EXPECT_EQ(record->body.size(), 6u);
}

TEST_F(ShmLinkTest, SaysThatThereIsNoRoom) {
  Connect();
  EXPECT_TRUE(worker_->Write({}, std::string(60000, 'x')).value());
  EXPECT_FALSE(worker_->Write({}, std::string(6000, 'x')).value());
}

TEST_F(ShmLinkTest, WakesWhoWaits) {
  Connect();
  std::thread ringing([&] { worker_->Ring(); });
  EXPECT_TRUE(shard_->Await(absl::InfiniteDuration()).ok());
  ringing.join();
  std::thread waking([&] { shard_->Wake(); });
  EXPECT_TRUE(shard_->Await(absl::InfiniteDuration()).ok());
  waking.join();
  // Nothing is left that would wake it.
  EXPECT_TRUE(shard_->Await(absl::ZeroDuration()).ok());
}

TEST_F(ShmLinkTest, RingingNeverWaitsForTheOtherEnd) {
  Connect();
  for (int i = 0; i < 100000; ++i) worker_->Ring();
  EXPECT_TRUE(shard_->Await(absl::InfiniteDuration()).ok());
}

TEST_F(ShmLinkTest, SaysThatTheOtherEndIsGone) {
  Connect();
  worker_.reset();
  EXPECT_EQ(shard_->Await(absl::InfiniteDuration()).code(), absl::StatusCode::kUnavailable);
  shard_->Ring();
}

TEST_F(ShmLinkTest, SaysThatTheTokenWasRefused) {
  std::thread refusing([&] { Accept(); });
  const auto connected = ShmLink::Connect(address_, kToken);
  refusing.join();
  EXPECT_EQ(connected.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kaon::proto
