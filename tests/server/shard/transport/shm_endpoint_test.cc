#include "server/shard/transport/shm_endpoint.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "proto/local_socket.h"
#include "proto/shm_link.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

// The identity of a caller without certificates.
const proto::Identity kWorker = {.domain = "", .role = proto::Role::kAdmin, .job = {}, .rank = {}};

proto::Identity Rank(uint32_t rank) {
  return {.domain = "d", .role = proto::Role::kWorker, .job = "gpt2", .rank = rank};
}

class ShmEndpointTest : public testing::Test {
 protected:
  void Start(ShmEndpoint::Options options) {
    if (options.max_sessions == 0) options.max_sessions = 2;
    options.ring_bytes = 64 << 10;
    auto started = ShmEndpoint::Start(std::move(options), {&accumulator_, &publisher_, &counts_});
    ASSERT_TRUE(started.ok()) << started.status();
    endpoint_ = *std::move(started);
  }

  v1::OpenSessionResponse Open() {
    const auto opened = endpoint_->Open(kWorker, proto::BootId());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.value_or(v1::OpenSessionResponse());
  }

  static absl::StatusOr<std::unique_ptr<proto::ShmLink>> Connect(
      const v1::OpenSessionResponse& opened) {
    return proto::ShmLink::Connect(opened.socket(), opened.token());
  }

  // Returns true if the other end closes the connection.
  static bool IsClosed(const proto::Descriptor& socket) {
    pollfd wanted = {socket.get(), POLLIN, 0};
    if (poll(&wanted, 1, 30000) != 1) return false;
    char byte = 0;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  // Waits until `is_so`, at most for a time that no machine needs.
  static bool Eventually(const std::function<bool()>& is_so) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (absl::Now() < end) {
      if (is_so()) return true;
      std::this_thread::yield();
    }
    return false;
  }

  uint64_t Unauthorized() const {
    uint64_t count = 0;
    for (const v1::EventCount& event : counts_.Happened()) {
      if (event.name() == "call_unauthorized") count = event.count();
    }
    return count;
  }

  GradientAccumulator accumulator_{GradientAccumulator::Options()};
  ShardMemory memory_{1};
  ParameterPublisher publisher_{memory_.backend()};
  monitor::EventCounts counts_;
  std::unique_ptr<ShmEndpoint> endpoint_;
};

TEST_F(ShmEndpointTest, GivesASessionForAToken) {
  Start({});
  const auto link = Connect(Open());
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_TRUE(Eventually([this] { return endpoint_->num_sessions() == 1; }));
}

TEST_F(ShmEndpointTest, ActsAsTheCallerOfItsToken) {
  Start({});
  const auto link = Connect(endpoint_->Open(Rank(3), proto::BootId()).value());
  ASSERT_TRUE(link.ok()) << link.status();
  v1::PushRequest request;
  request.mutable_open()->set_job("gpt2");
  request.mutable_open()->set_rank(1);
  const proto::RingHeader header = {0, static_cast<uint32_t>(proto::ShmRecord::kPushRequest), 1, 0};
  ASSERT_TRUE((*link)->Write(header, request.SerializeAsString()).value());
  (*link)->Ring();
  std::vector<std::byte> memory;
  auto answer = (*link)->reader().Take(&memory);
  while (answer.ok() && !answer->has_value() && (*link)->Await(absl::InfiniteDuration()).ok()) {
    answer = (*link)->reader().Take(&memory);
  }
  ASSERT_TRUE(answer.ok() && answer->has_value());
  EXPECT_EQ((*answer)->header.kind, static_cast<uint32_t>(proto::ShmRecord::kEnd));
  EXPECT_EQ((*answer)->header.code, static_cast<uint32_t>(absl::StatusCode::kPermissionDenied));
}

TEST_F(ShmEndpointTest, RefusesATokenThatWasUsed) {
  Start({});
  const v1::OpenSessionResponse opened = Open();
  const auto first = Connect(opened);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Connect(opened).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Unauthorized(), 1u);
}

TEST_F(ShmEndpointTest, RefusesWhatIsNoToken) {
  Start({});
  v1::OpenSessionResponse opened = Open();
  for (const std::string& token :
       {std::string(32, '\0'), opened.token().substr(0, 31), std::string("x")}) {
    v1::OpenSessionResponse wrong = opened;
    wrong.set_token(token);
    EXPECT_EQ(Connect(wrong).status().code(), absl::StatusCode::kUnavailable) << token.size();
  }
  EXPECT_EQ(Unauthorized(), 3u);
  // None of that was its end.
  EXPECT_TRUE(Connect(opened).ok());
}

TEST_F(ShmEndpointTest, RefusesATokenThatIsTooOld) {
  ShmEndpoint::Options options;
  options.token_lifetime = absl::ZeroDuration();
  Start(std::move(options));
  EXPECT_EQ(Connect(Open()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ShmEndpointTest, RefusesProcessesOfOtherUsers) {
  ShmEndpoint::Options options;
  options.user = getuid() + 1;
  Start(std::move(options));
  const v1::OpenSessionResponse opened = Open();
  EXPECT_EQ(Connect(opened).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Unauthorized(), 1u);
  EXPECT_EQ(endpoint_->num_sessions(), 0u);
}

TEST_F(ShmEndpointTest, TakesProcessesOfUsersThatAreNamed) {
  ShmEndpoint::Options options;
  options.user = getuid() + 1;
  options.other_users = {getuid()};
  Start(std::move(options));
  EXPECT_TRUE(Connect(Open()).ok());
}

TEST_F(ShmEndpointTest, RefusesAnotherMachine) {
  Start({});
  const auto opened = endpoint_->Open(kWorker, "00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(opened.status().message(), "boot_id is not that of the shard's machine");
  EXPECT_FALSE(endpoint_->Open(kWorker, "").ok());
}

TEST_F(ShmEndpointTest, HasNoMoreSessionsThanItMay) {
  Start({});
  auto first = Connect(Open());
  ASSERT_TRUE(first.ok());
  // One that is not redeemed yet counts.
  Open();
  const auto third = endpoint_->Open(kWorker, proto::BootId());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.status().message(), "shm_sessions is 2, all of them are taken");
}

TEST_F(ShmEndpointTest, NoRankKeepsTheOthersFromASession) {
  ShmEndpoint::Options options;
  options.max_sessions = 8;
  Start(std::move(options));
  std::vector<absl::StatusOr<std::unique_ptr<proto::ShmLink>>> greedy;
  for (int i = 0; i < 2; ++i) {
    greedy.push_back(Connect(endpoint_->Open(Rank(0), proto::BootId()).value()));
    ASSERT_TRUE(greedy.back().ok());
    // One that is never redeemed counts.
    ASSERT_TRUE(endpoint_->Open(Rank(0), proto::BootId()).ok());
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(endpoint_->Open(Rank(0), proto::BootId()).status(),
              absl::ResourceExhaustedError("spiffe://d/kaon/worker/gpt2/0 has 4 of 8 sessions over "
                                           "shared memory, must have at most 4"));
  }
  for (const uint32_t rank : {1, 1, 2, 2}) {
    EXPECT_TRUE(endpoint_->Open(Rank(rank), proto::BootId()).ok()) << rank;
  }
  EXPECT_EQ(endpoint_->Open(Rank(3), proto::BootId()).status(),
            absl::ResourceExhaustedError("shm_sessions is 8, all of them are taken"));
  // Another session may begin as soon as the endpoint notices the end of one.
  greedy[0]->reset();
  EXPECT_TRUE(Eventually([this] { return endpoint_->Open(Rank(0), proto::BootId()).ok(); }));
}

TEST_F(ShmEndpointTest, OneCertificateGetsHalfOfTheSessionsAtMost) {
  proto::Identity any_rank = Rank(0);
  any_rank.rank.reset();
  for (const auto& [peer, sessions, most] :
       std::vector<std::tuple<proto::Identity, uint32_t, uint32_t>>{{Rank(0), 1, 1},
                                                                    {Rank(0), 2, 1},
                                                                    {Rank(0), 5, 3},
                                                                    {Rank(0), 64, 4},
                                                                    {any_rank, 64, 32},
                                                                    {kWorker, 64, 64}}) {
    ShmEndpoint::Options options;
    options.max_sessions = sessions;
    Start(std::move(options));
    uint32_t opened = 0;
    while (endpoint_->Open(peer, proto::BootId()).ok()) ++opened;
    EXPECT_EQ(opened, most) << peer.ToUri() << " of " << sessions;
  }
}

TEST_F(ShmEndpointTest, TokensThatNobodyUsesAreFreeAgainLater) {
  ShmEndpoint::Options options;
  options.max_sessions = 2;
  options.token_lifetime = absl::Milliseconds(20);
  Start(std::move(options));
  ASSERT_TRUE(endpoint_->Open(Rank(0), proto::BootId()).ok());
  EXPECT_TRUE(Eventually([this] { return endpoint_->Open(Rank(0), proto::BootId()).ok(); }));
}

TEST_F(ShmEndpointTest, HasNoneForReaders) {
  Start({});
  const proto::Identity reader = {
      .domain = "d", .role = proto::Role::kReader, .job = "gpt2", .rank = {}};
  EXPECT_EQ(endpoint_->Open(reader, proto::BootId()).status(),
            absl::FailedPreconditionError("sessions over shared memory are for workers"));
}

TEST_F(ShmEndpointTest, AWorkerThatIsGoneLeavesItsSessionToOthers) {
  ShmEndpoint::Options options;
  options.max_sessions = 1;
  Start(std::move(options));
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<v1::OpenSessionResponse> opened;
    ASSERT_TRUE(Eventually([&] {
      opened = endpoint_->Open(kWorker, proto::BootId());
      return opened.ok();
    }));
    ASSERT_TRUE(Connect(*opened).ok()) << i;
  }
}

TEST_F(ShmEndpointTest, ClosesAConnectionThatSaysNothing) {
  ShmEndpoint::Options options;
  options.token_timeout = absl::ZeroDuration();
  Start(std::move(options));
  const auto silent = proto::ConnectLocal(Open().socket());
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_TRUE(IsClosed(*silent));
}

TEST_F(ShmEndpointTest, ThoseThatSayNothingDoNotKeepOthersOut) {
  Start({});
  const v1::OpenSessionResponse opened = Open();
  std::vector<proto::Descriptor> silent;
  for (int i = 0; i < 15; ++i) {
    silent.push_back(proto::ConnectLocal(opened.socket()).value());
  }
  EXPECT_TRUE(Connect(opened).ok());
}

TEST_F(ShmEndpointTest, EndsASessionThatNobodyUses) {
  ShmEndpoint::Options options;
  options.idle_limit = absl::Milliseconds(1);
  Start(std::move(options));
  const auto link = Connect(Open());
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_TRUE(absl::IsUnavailable((*link)->Await(absl::InfiniteDuration())));
  EXPECT_TRUE(Eventually([this] { return endpoint_->num_sessions() == 0; }));
}

TEST_F(ShmEndpointTest, EndsItsSessionsWhenItStops) {
  Start({});
  const auto link = Connect(Open());
  ASSERT_TRUE(link.ok()) << link.status();
  endpoint_->Stop();
  EXPECT_TRUE(absl::IsUnavailable((*link)->Await(absl::InfiniteDuration())));
  EXPECT_FALSE(endpoint_->Open(kWorker, proto::BootId()).ok());
  endpoint_->Stop();
}

TEST_F(ShmEndpointTest, MakesItsSocketInADirectoryAndRemovesIt) {
  std::string directory = "/tmp/kaon-shm-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  ShmEndpoint::Options options;
  options.directory = directory;
  Start(std::move(options));
  const v1::OpenSessionResponse opened = Open();
  EXPECT_EQ(opened.socket().substr(0, directory.size()), directory);
  EXPECT_TRUE(Connect(opened).ok());
  endpoint_->Stop();
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove_all(directory);
}

TEST_F(ShmEndpointTest, RemovesWhatKilledShardsHaveLeft) {
  std::string directory = "/tmp/kaon-shm-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  ShmEndpoint::Options options;
  options.directory = directory;
  Start(options);
  const v1::OpenSessionResponse opened = Open();
  // A process that died leaves such a socket.
  const std::string own = directory + "/kaon-shard-0123456789abcdef0123456789abcde";
  const std::string abandoned = own + "f.sock";
  { ASSERT_TRUE(proto::ListenLocal(abandoned).ok()); }
  const std::string other_name = directory + "/kaon-shard-mine.sock";
  { ASSERT_TRUE(proto::ListenLocal(other_name).ok()); }
  const std::string no_socket = own + "0.sock";
  std::ofstream(no_socket) << "data";
  const std::string other_user = own + "1.sock";
  { ASSERT_TRUE(proto::ListenLocal(other_user).ok()); }
  const bool given_away = chown(other_user.c_str(), 65533, -1) == 0;
  ASSERT_TRUE(std::filesystem::exists(abandoned));
  const auto neighbour = ShmEndpoint::Start(options, {&accumulator_, &publisher_, &counts_});
  ASSERT_TRUE(neighbour.ok()) << neighbour.status();
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(other_name));
  EXPECT_TRUE(std::filesystem::exists(no_socket));
  // Only root can change the owner of a file.
  EXPECT_EQ(std::filesystem::exists(other_user), given_away);
  // The socket of a live shard still belongs to that shard, and no caller was counted as an
  // intruder.
  EXPECT_TRUE(Connect(opened).ok());
  EXPECT_EQ(Unauthorized(), 0u);
  std::filesystem::remove_all(directory);
}

TEST_F(ShmEndpointTest, RefusesADirectoryThatEverybodyMayWriteTo) {
  ShmEndpoint::Options options;
  options.directory = ::testing::TempDir() + "/everybody";
  ASSERT_EQ(mkdir(options.directory.c_str(), 0700), 0);
  ASSERT_EQ(chmod(options.directory.c_str(), 01777), 0);
  EXPECT_EQ(ShmEndpoint::Start(options, {&accumulator_, &publisher_, &counts_}).status(),
            absl::FailedPreconditionError("shm_dir " + options.directory +
                                          " has mode 1777, others may not write to it: chmod o-w, "
                                          "or name another directory"));
}

TEST_F(ShmEndpointTest, RefusesADirectoryWhereNoSocketCanBe) {
  ShmEndpoint::Options options;
  options.directory = "/nonexistent";
  EXPECT_EQ(ShmEndpoint::Start(options, {&accumulator_, &publisher_, &counts_}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options.directory = ::testing::TempDir() + "/" + std::string(100, 'x');
  ASSERT_EQ(mkdir(options.directory.c_str(), 0700), 0);
  EXPECT_EQ(ShmEndpoint::Start(options, {&accumulator_, &publisher_, &counts_}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::shard
