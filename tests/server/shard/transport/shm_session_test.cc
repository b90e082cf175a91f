#include "server/shard/transport/shm_session.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/grpc_status.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/server/shard/transport/shm_worker.h"

namespace kaon::shard {
namespace {

using proto::ShmRecord;

const std::vector<float> kW = {1, 2, 3, 4, 5, 6};
const std::vector<float> kB = {1, 2, 3, 4};

class ShmSessionTest : public ServedShardTest {
 protected:
  // The arguments are those of PlanStepOne.
  explicit ShmSessionTest(uint64_t b_elements = 4, uint32_t micro_batches = 1)
      : ServedShardTest(/*shm_sessions=*/2) {
    PlanStepOne(b_elements, micro_batches);
    worker_ = Connect();
    digest_ = Describe().state_digest();
  }

  std::unique_ptr<ShmWorker> Connect() { return ShmWorker::Connect(channel_); }

  // The shard answers as over gRPC, in the same words.
  void ExpectAsOverGrpc(const std::vector<v1::PushRequest>& requests) {
    const uint64_t digest = Describe().state_digest();
    EXPECT_EQ(worker_->Push(requests), proto::FromGrpc(Push(requests)));
    EXPECT_EQ(Describe().state_digest(), digest);
  }
  void ExpectAsOverGrpc(const v1::PullRequest& request) {
    EXPECT_EQ(worker_->Pull(request), proto::FromGrpc(Pull(request)));
  }

  // The shard ends the session, is none the worse for it, and lets others have theirs.
  void ExpectSessionEnds() {
    EXPECT_TRUE(worker_->IsEnded());
    EXPECT_EQ(Describe().state_digest(), digest_);
    worker_ = Connect();
    std::vector<v1::PushResponse> responses;
    EXPECT_TRUE(
        worker_
            ->Push({OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()},
                   &responses)
            .ok());
    EXPECT_TRUE(responses.back().has_finished());
  }

  // Checks the gradient: both ranks' contributions are folded.
  void ExpectHonestSums() {
    const v1::Prepared prepared = coordinator_->Receive().prepared();
    ASSERT_EQ(prepared.sums_size(), 2);
    EXPECT_EQ(prepared.sums(0).sum_squares(), 91);
    EXPECT_EQ(prepared.sums(1).sum_squares(), 30);
  }

  std::unique_ptr<ShmWorker> worker_;
  uint64_t digest_ = 0;
};

TEST_F(ShmSessionTest, GrantsCreditTakesChunksAndConfirmsTheFinish) {
  std::vector<v1::PushResponse> responses;
  const absl::Status status = worker_->Push(
      {OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()}, &responses);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(responses.front().opened().credit_bytes(), uint64_t{32} << 20);
  EXPECT_TRUE(responses.back().has_finished());
}

TEST_F(ShmSessionTest, AStepIsMadeOfBothTransports) {
  ASSERT_TRUE(
      Push({OpenRequest(1, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()}).ok());
  ASSERT_TRUE(
      worker_->Push({OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()})
          .ok());
  ExpectHonestSums();
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
  EXPECT_EQ(Describe().state().applied_step(), 1u);
}

TEST_F(ShmSessionTest, ReturnsCreditForWhatIsFolded) {
  worker_->Send(ShmRecord::kPushRequest, 1, OpenRequest(0, 1).SerializeAsString());
  worker_->Receive();
  worker_->Send(ShmRecord::kPushRequest, 1, ChunkRequest(0, kW).SerializeAsString());
  v1::PushResponse response;
  ASSERT_TRUE(response.ParseFromString(worker_->Receive().body));
  EXPECT_EQ(response.credit_bytes(), 24u);
}

TEST_F(ShmSessionTest, EndsPushesOfAReopenedStepWithAborted) {
  worker_->Send(ShmRecord::kPushRequest, 1, OpenRequest(0, 1).SerializeAsString());
  worker_->Receive();
  v1::StepPlan reopened = TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  coordinator_->Send(PlanOf(reopened));
  const ShmWorker::Record record = worker_->Receive();
  EXPECT_EQ(record.header.kind, static_cast<uint32_t>(ShmRecord::kEnd));
  EXPECT_EQ(record.header.code, static_cast<uint32_t>(absl::StatusCode::kAborted));
}

TEST_F(ShmSessionTest, RefusesWhatGrpcRefusesInTheSameWords) {
  v1::PushRequest other_job = OpenRequest(0, 1);
  other_job.mutable_open()->set_job("bert");
  v1::PushRequest spoilt = ChunkRequest(1, kB);
  (*spoilt.mutable_payload())[3] ^= 1;
  v1::PushRequest no_parameter = ChunkRequest(1, kB);
  no_parameter.mutable_chunk()->set_parameter_id(3);
  v1::PushRequest beyond = ChunkRequest(1, kB);
  beyond.mutable_chunk()->set_offset(1);
  v1::PushRequest far_beyond = ChunkRequest(1, kB);
  far_beyond.mutable_chunk()->set_offset(~uint64_t{0});
  v1::PushRequest huge = ChunkRequest(1, kB);
  huge.mutable_chunk()->set_num_elements(~uint64_t{0});
  ExpectAsOverGrpc({other_job});
  ExpectAsOverGrpc({OpenRequest(2, 1)});
  ExpectAsOverGrpc({OpenRequest(0, 7)});
  ExpectAsOverGrpc({OpenRequest(0, 1), OpenRequest(0, 1)});
  for (const v1::PushRequest& request : {spoilt, no_parameter, beyond, far_beyond, huge}) {
    ExpectAsOverGrpc({OpenRequest(0, 1), request});
  }
  ExpectAsOverGrpc({ChunkRequest(1, kB)});
  ExpectAsOverGrpc({FinishRequest()});
  ExpectAsOverGrpc({v1::PushRequest()});
  ExpectAsOverGrpc({OpenRequest(0, 1), FinishRequest()});
}

TEST_F(ShmSessionTest, PullsWhatGrpcPulls) {
  for (const v1::PullRequest& request : {PullOf(0, {2, 0}), PullOf(0, {0}), PullOf(0, {})}) {
    std::vector<v1::PullResponse> expected;
    std::vector<v1::PullResponse> pulled;
    ASSERT_TRUE(Pull(request, &expected).ok());
    const absl::Status status = worker_->Pull(request, &pulled);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(pulled.size(), expected.size());
    for (size_t i = 0; i < pulled.size(); ++i) {
      EXPECT_EQ(pulled[i].SerializeAsString(), expected[i].SerializeAsString());
    }
  }
}

TEST_F(ShmSessionTest, RefusesPullsThatGrpcRefusesInTheSameWords) {
  v1::PullRequest other_job = PullOf(0, {0});
  other_job.set_job("bert");
  v1::PullRequest many = PullOf(0, {});
  for (int i = 0; i < 100001; ++i) many.add_parameter_ids(0);
  ExpectAsOverGrpc(other_job);
  ExpectAsOverGrpc(PullOf(2, {0}));
  ExpectAsOverGrpc(PullOf(0, {7}));
  ExpectAsOverGrpc(many);
}

TEST_F(ShmSessionTest, APullWaitsForAStepThatIsPlanned) {
  std::vector<v1::PullResponse> responses;
  absl::Status status;
  const std::unique_ptr<ShmWorker> reader = Connect();
  std::thread reading([&] { status = reader->Pull(PullOf(1, {0, 2}), &responses); });
  for (uint32_t rank : {0, 1}) {
    EXPECT_TRUE(
        worker_
            ->Push({OpenRequest(rank, 1), ChunkRequest(0, {1, 0, 0, 0, 1, 0}), FinishRequest({1})})
            .ok());
  }
  EXPECT_TRUE(coordinator_->Receive().has_prepared());
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
  reading.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(responses.empty());
}

TEST_F(ShmSessionTest, ACancelledPullIsForgottenAndTheNextCallServed) {
  worker_->Send(ShmRecord::kPullRequest, worker_->next_call(), PullOf(1, {0}).SerializeAsString());
  worker_->Send(ShmRecord::kCancel, 1, "");
  EXPECT_TRUE(worker_->Pull(PullOf(0, {0})).ok());
}

TEST_F(ShmSessionTest, WhatFollowsTheEndOfACallIsDropped) {
  const uint32_t call = worker_->next_call();
  worker_->Send(ShmRecord::kPushRequest, call, OpenRequest(0, 1).SerializeAsString());
  worker_->Send(ShmRecord::kCancel, call, "");
  worker_->Send(ShmRecord::kPushRequest, call, ChunkRequest(0, kW).SerializeAsString());
  worker_->Send(ShmRecord::kCancel, call, "");
  const uint32_t next = worker_->next_call();
  worker_->Send(ShmRecord::kPushRequest, next, OpenRequest(0, 1).SerializeAsString());
  // The first call's own answer may have arrived in time or not.
  ShmWorker::Record record = worker_->Receive();
  if (record.header.call == call) record = worker_->Receive();
  EXPECT_EQ(record.header.call, next);
  v1::PushResponse response;
  ASSERT_TRUE(response.ParseFromString(record.body));
  EXPECT_EQ(response.opened().received_size(), 0);
}

TEST_F(ShmSessionTest, AWorkerThatDiesInTheMiddleGoesOnOverGrpc) {
  const uint32_t call = worker_->next_call();
  worker_->Send(ShmRecord::kPushRequest, call, OpenRequest(0, 1).SerializeAsString());
  worker_->Receive();
  worker_->Send(ShmRecord::kPushRequest, call, ChunkRequest(0, kW).SerializeAsString());
  worker_->Receive();
  // Half a chunk: written, never committed.
  std::memset(worker_->requests().bytes + 200, 7, 1000);
  worker_->Die();
  std::vector<v1::PushResponse> responses;
  ASSERT_TRUE(Push({OpenRequest(0, 1), ChunkRequest(1, kB), FinishRequest()}, &responses).ok());
  EXPECT_EQ(responses.front().opened().received(0).num_elements(), 6u);
  // The session of the dead worker is free.
  const auto first = Connect();
  const auto second = Connect();
}

TEST_F(ShmSessionTest, EndsOnLengthsThatCannotBe) {
  for (const uint32_t size : {uint32_t{0xffffffff}, uint32_t{0x7fffffff}, uint32_t{1} << 22,
                              static_cast<uint32_t>(proto::kMaxRingBody) + 1, uint32_t{33}}) {
    const proto::RingMemory ring = worker_->requests();
    const proto::RingHeader header = {size, 1, 1, 0};
    std::memcpy(ring.bytes, &header, sizeof(header));
    ring.places->written = 48;
    worker_->Ring();
    ExpectSessionEnds();
    worker_ = Connect();
  }
}

TEST_F(ShmSessionTest, EndsOnPlacesThatCannotBe) {
  for (const uint64_t place : {uint64_t{1}, uint64_t{17}, uint64_t{proto::kShmRingBytes} + 16,
                               ~uint64_t{0}, ~uint64_t{15}}) {
    worker_->requests().places->written = place;
    worker_->Ring();
    ExpectSessionEnds();
    worker_ = Connect();
  }
}

TEST_F(ShmSessionTest, EndsWhenMoreWasReadThanWritten) {
  worker_->responses().places->read = uint64_t{1} << 40;
  // No one reads the answers, until there is no room for another.
  const std::string request = PullOf(0, std::vector<uint32_t>(5000, 2)).SerializeAsString();
  for (int i = 0; i < 50; ++i) {
    worker_->Send(ShmRecord::kPullRequest, worker_->next_call(), request);
  }
  worker_->AwaitClosed();
  ExpectSessionEnds();
}

TEST_F(ShmSessionTest, AWorkerThatReadsNothingKeepsNobodyElseWaiting) {
  const std::string request = PullOf(0, std::vector<uint32_t>(5000, 2)).SerializeAsString();
  for (int i = 0; i < 50; ++i) {
    worker_->Send(ShmRecord::kPullRequest, worker_->next_call(), request);
  }
  EXPECT_TRUE(Connect()->Pull(PullOf(0, {0})).ok());
}

TEST_F(ShmSessionTest, EndsOnRecordsThatNoWorkerSends) {
  for (const uint32_t kind : {0u, 3u, 4u, 6u, 99u}) {
    worker_->Send(static_cast<ShmRecord>(kind), 1, "");
    ExpectSessionEnds();
    worker_ = Connect();
  }
  // A call within a call.
  worker_->Send(ShmRecord::kPushRequest, 1, OpenRequest(0, 1).SerializeAsString());
  worker_->Send(ShmRecord::kPullRequest, 2, PullOf(0, {0}).SerializeAsString());
  ExpectSessionEnds();
}

TEST_F(ShmSessionTest, RefusesBodiesThatAreNoMessages) {
  worker_->Send(ShmRecord::kPullRequest, worker_->next_call(), "\xff\xff\xff");
  EXPECT_EQ(worker_->Receive().header.code,
            static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  worker_->Send(ShmRecord::kPushRequest, worker_->next_call(), "\xff\xff\xff");
  EXPECT_EQ(worker_->Receive().header.code,
            static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
}

// Keeps overwriting a body with another one where a shard reads. Writes the words in order from
// either end, and then rests for a while. One that yields lets a shard find whole bodies and halves
// of them even with one processor. One that does not yield keeps its processor, and writes while
// the shard copies, checks and adds.
class Scribbler {
 public:
  // Both of one size, a multiple of a word. Returns at some moment after the first is written.
  Scribbler(std::byte* at, std::array<std::string, 2> bodies, bool yields, uint32_t seed)
      : at_(reinterpret_cast<uint64_t*>(at)),
        bodies_(std::move(bodies)),
        yields_(yields),
        random_(seed),
        thread_([this] { Scribble(); }) {
    while (!began_) std::this_thread::yield();
  }
  ~Scribbler() {
    stop_ = true;
    thread_.join();
  }

 private:
  static constexpr size_t kParts = 32;

  void Scribble() {
    uint32_t before_it_began = 1 + random_() % (8 * kParts);
    for (size_t i = 0; !stop_; ++i) {
      WriteOver(bodies_[i % 2], random_() % 2 == 0, i == 0 ? nullptr : &before_it_began);
      for (uint32_t left = random_() % (4 * kParts); left > 0; --left) Rest(&before_it_began);
    }
  }

  void WriteOver(const std::string& body, bool from_end, uint32_t* before_it_began) {
    const size_t words = body.size() / sizeof(uint64_t);
    for (size_t n = 0; n < words; ++n) {
      const size_t k = from_end ? words - 1 - n : n;
      uint64_t word = 0;
      std::memcpy(&word, body.data() + k * sizeof(word), sizeof(word));
      std::atomic_ref<uint64_t>(at_[k]).store(word, std::memory_order_relaxed);
      if (before_it_began != nullptr && n % (words / kParts) == 0) Rest(before_it_began);
    }
  }

  void Rest(uint32_t* before_it_began) {
    if (*before_it_began > 0 && --*before_it_began == 0) began_ = true;
    if (yields_) return std::this_thread::yield();
    for (int turns = 1000; turns > 0 && !stop_; --turns) {
    }
  }

  uint64_t* const at_;
  const std::array<std::string, 2> bodies_;
  const bool yields_;
  std::mt19937 random_;
  std::atomic<bool> began_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

constexpr uint32_t kRacedMicroBatches = 64;

class ShmSessionRaceTest : public ShmSessionTest {
 protected:
  static constexpr uint64_t kElements = 65536;

  ShmSessionRaceTest() : ShmSessionTest(kElements, kRacedMicroBatches) {}

  // Returns a chunk of b whose elements are all `value`.
  static std::string ChunkOf(uint32_t micro_batch, float value) {
    v1::PushRequest request = ChunkRequest(1, std::vector<float>(kElements, value));
    request.mutable_chunk()->set_micro_batch(micro_batch);
    return request.SerializeAsString();
  }

  void Open() {
    call_ = worker_->next_call();
    worker_->Send(ShmRecord::kPushRequest, call_, OpenRequest(0, 1).SerializeAsString());
    worker_->Receive();
  }

  // Sends the micro-batch as a chunk that changes between ones and twos. Returns the shard's
  // answer.
  ShmWorker::Record Race(uint32_t micro_batch) {
    std::array<std::string, 2> bodies = {ChunkOf(micro_batch, 1), ChunkOf(micro_batch, 2)};
    const size_t size = bodies[0].size();
    EXPECT_EQ(bodies[1].size(), size);
    // The ring has room for whole words.
    for (std::string& body : bodies) body.resize((size + 7) / 8 * 8);
    const Scribbler scribbler(worker_->Reserve(size), std::move(bodies), micro_batch % 2 == 0,
                              ++seed_);
    worker_->Commit(ShmRecord::kPushRequest, call_, size);
    return worker_->Receive();
  }

  uint32_t call_ = 0;
  uint32_t seed_ = 0;
};

// A worker writes into a chunk and its checksum while the shard reads them. The shard folds the
// content that it checked: all of one or all of the other.
TEST_F(ShmSessionRaceTest, FoldsNothingThatChangedAfterItWasChecked) {
  uint32_t accepted = 0;
  uint32_t refused = 0;
  Open();
  for (int attempt = 0; attempt < 10000 && accepted < kRacedMicroBatches; ++attempt) {
    const ShmWorker::Record answer = Race(accepted);
    if (answer.header.kind == static_cast<uint32_t>(ShmRecord::kPushResponse)) {
      ++accepted;
      continue;
    }
    ++refused;
    ASSERT_EQ(answer.header.code, static_cast<uint32_t>(absl::StatusCode::kDataLoss))
        << answer.body;
    Open();
  }
  ASSERT_EQ(accepted, kRacedMicroBatches) << "after " << refused << " that were refused";
  EXPECT_GT(refused, 0u);
  worker_->Send(ShmRecord::kPushRequest, call_, FinishRequest({0}).SerializeAsString());
  ASSERT_TRUE(Push({OpenRequest(1, 1), FinishRequest({0, 1})}).ok());
  // Every element has the sum of the same ones and twos.
  const v1::Prepared prepared = coordinator_->Receive().prepared();
  ASSERT_EQ(prepared.sums_size(), 2);
  const v1::ParameterSums& sums = prepared.sums(1);
  EXPECT_EQ(sums.sum_squares(), kElements * sums.absolute_max() * sums.absolute_max());
  EXPECT_GE(sums.absolute_max(), kRacedMicroBatches * 1.0 / 2);
  EXPECT_LE(sums.absolute_max(), kRacedMicroBatches * 2.0 / 2);
}

TEST_F(ShmSessionTest, ServesOthersWhileAWorkerRingsWithoutEnd) {
  std::atomic<bool> stop = false;
  std::thread ringing([&] {
    while (!stop) worker_->Ring();
  });
  EXPECT_TRUE(
      Push({OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()}).ok());
  stop = true;
  ringing.join();
}

TEST_F(ShmSessionTest, EndsAtShutdownWhateverAWorkerStillSays) {
  ASSERT_TRUE(worker_->Pull(PullOf(0, {0})).ok());
  // Of the call that is over: each is dropped, and there is always another.
  std::thread flooding([&] { worker_->Flood(ShmRecord::kPushRequest, 1); });
  server_->Shutdown();
  flooding.join();
}

TEST_F(ShmSessionTest, EndsAPullThatWaitsAtShutdown) {
  worker_->Send(ShmRecord::kPullRequest, worker_->next_call(), PullOf(1, {0}).SerializeAsString());
  server_->Shutdown();
  const ShmWorker::Record record = worker_->Receive();
  if (record.header.kind != 0) {
    EXPECT_EQ(record.header.code, static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  }
  EXPECT_TRUE(worker_->IsEnded());
}

}  // namespace
}  // namespace kaon::shard
