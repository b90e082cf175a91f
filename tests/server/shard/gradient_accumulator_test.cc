#include "server/shard/gradient_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "proto/crc32c.h"
#include "server/tier/host_tier.h"
#include "tests/server/shard/plans.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;
constexpr uint32_t kFrozen = 2;

struct Worker {
  PushStreamId stream = 0;
  v1::PushOpened opened;
  std::shared_ptr<uint64_t> credit = std::make_shared<uint64_t>(0);
  std::shared_ptr<std::vector<absl::Status>> ended = std::make_shared<std::vector<absl::Status>>();
};

class GradientAccumulatorTest : public testing::Test {
 protected:
  GradientAccumulatorTest() : host_(1 << 20), store_(host_) {
    kernels::BackendOptions options;
    options.gemm = "reference";
    backend_ = *kernels::CreateBackend(options);
    Restart(2 * proto::kMaxChunkBytes);
  }

  void Restart(uint64_t staging_bytes) {
    accumulator_.reset();
    folded_.clear();
    GradientAccumulator::Options options;
    options.store = &store_;
    options.backend = backend_.get();
    options.staging_bytes = staging_bytes;
    options.on_folded = [this](uint64_t generation) { folded_.push_back(generation); };
    accumulator_ = std::make_unique<GradientAccumulator>(options);
    ASSERT_TRUE(accumulator_->Reserve(registration_, 0).ok());
    accumulator_->ExpectStep({"gpt2", 1, 1});
  }
  // Step 1, generation 1.
  void Begin() { accumulator_->BeginFolding(plan_, 1); }

  v1::PushOpen OpenRequest(uint32_t rank, uint64_t step = 1) {
    v1::PushOpen open;
    open.set_job("gpt2");
    open.set_timeline(1);
    open.set_step(step);
    open.set_rank(rank);
    *open.mutable_attempt()->mutable_ballot() = MakeBallot(1);
    open.mutable_attempt()->set_number(rank + 1);
    return open;
  }
  absl::StatusOr<Worker> TryOpen(const v1::PushOpen& request) {
    Worker worker;
    PushCallbacks callbacks;
    callbacks.on_credit = [credit = worker.credit](uint64_t bytes) { *credit += bytes; };
    callbacks.on_ended = [ended = worker.ended](const absl::Status& status) {
      ended->push_back(status);
    };
    absl::StatusOr<OpenPush> opened = accumulator_->Open(request, callbacks);
    if (!opened.ok()) return opened.status();
    worker.stream = opened->stream;
    worker.opened = opened->opened;
    return worker;
  }
  Worker Open(uint32_t rank) {
    absl::StatusOr<Worker> worker = TryOpen(OpenRequest(rank));
    EXPECT_TRUE(worker.ok()) << worker.status();
    return worker.ok() ? *worker : Worker();
  }

  static v1::TensorChunk Header(uint32_t parameter, uint64_t offset,
                                const std::vector<std::byte>& payload,
                                v1::DType dtype = v1::DTYPE_FLOAT32) {
    v1::TensorChunk chunk;
    chunk.set_parameter_id(parameter);
    chunk.set_offset(offset);
    chunk.set_dtype(dtype);
    chunk.set_num_elements(payload.size() / std::max<size_t>(1, proto::WireSizeOf(dtype)));
    chunk.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
    return chunk;
  }
  static std::vector<std::byte> Encode(const std::vector<float>& values,
                                       v1::DType dtype = v1::DTYPE_FLOAT32) {
    std::vector<std::byte> bytes(values.size() * proto::WireSizeOf(dtype));
    kernels::FromFloat(static_cast<kernels::DType>(dtype), values, bytes.data());
    return bytes;
  }
  absl::Status Push(const Worker& worker, uint32_t parameter, uint64_t offset,
                    const std::vector<float>& values, uint32_t micro_batch = 0) {
    const std::vector<std::byte> payload = Encode(values);
    v1::TensorChunk chunk = Header(parameter, offset, payload);
    chunk.set_micro_batch(micro_batch);
    return accumulator_->AddChunk(worker.stream, chunk, {absl::MakeConstSpan(payload)});
  }
  absl::Status Finish(const Worker& worker, std::vector<uint32_t> missing = {}) {
    v1::PushFinish finish;
    for (uint32_t id : missing) finish.add_missing_parameters(id);
    return accumulator_->Finish(worker.stream, finish);
  }
  // Pushes 6 elements of w and 4 of b, and finishes.
  void PushAll(const Worker& worker, float scale) {
    ASSERT_TRUE(
        Push(worker, kW, 0, {scale, 2 * scale, 3 * scale, 4 * scale, 5 * scale, 6 * scale}).ok());
    ASSERT_TRUE(Push(worker, kB, 0, {scale, scale, scale, scale}).ok());
    ASSERT_TRUE(Finish(worker).ok());
  }
  std::vector<float> Gradient(uint32_t parameter) {
    const absl::Span<const float> gradient = accumulator_->gradient(parameter);
    return std::vector<float>(gradient.begin(), gradient.end());
  }
  static void ExpectInvalid(const absl::Status& status, absl::string_view words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }

  const v1::RegisterBody registration_ = MakeRegistration();
  v1::StepPlan plan_ = TrainPlan(1, 1, 1);
  tier::HostTier host_;
  tier::TieredStore store_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<uint64_t> folded_;
  std::unique_ptr<GradientAccumulator> accumulator_;
};

TEST_F(GradientAccumulatorTest, DividesTheWeightedSumByTheTotalWeightAndTheLossScale) {
  plan_.mutable_step()->mutable_members(0)->set_token_weight(3);
  plan_.mutable_step()->set_loss_scale(2);
  Begin();
  PushAll(Open(0), 1);
  EXPECT_TRUE(folded_.empty());
  PushAll(Open(1), 5);
  ASSERT_EQ(folded_, std::vector<uint64_t>{1});
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  // (3 * 1 + 1 * 5) / 4 / 2.
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 1));
  EXPECT_EQ(Gradient(kW), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(facts->sums_size(), 2);
  EXPECT_EQ(facts->sums(0).parameter_id(), kW);
  EXPECT_EQ(facts->sums(0).sum_squares(), 91);
  EXPECT_EQ(facts->sums(0).absolute_max(), 6);
  EXPECT_EQ(facts->sums(1).num_elements(), 4u);
  EXPECT_FALSE(facts->has_first_non_finite());
}

TEST_F(GradientAccumulatorTest, GivesTheSameBitsForEveryOrderOfArrival) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  plan_.mutable_step()->mutable_members(0)->set_token_weight(0.1);
  plan_.mutable_step()->mutable_members(1)->set_token_weight(0.7);
  plan_.mutable_step()->mutable_members(0)->set_micro_batches(2);
  plan_.mutable_step()->mutable_members(1)->set_micro_batches(2);
  struct Piece {
    uint32_t rank, micro, parameter;
    uint64_t offset;
    std::vector<float> values;
  };
  std::vector<Piece> pieces;
  for (uint32_t rank : {0, 1}) {
    for (uint32_t micro : {0, 1}) {
      for (uint64_t i = 0; i < 6; ++i) {
        const float value =
            std::ldexp(1.0f + rank * 0.37f + micro * 0.11f, static_cast<int>(random() % 40) - 20);
        pieces.push_back({rank, micro, kW, i, {value}});
        if (i < 4) pieces.push_back({rank, micro, kB, i, {-value}});
      }
    }
  }
  std::vector<float> expected;
  uint64_t digest = 0;
  for (int order = 0; order < 50; ++order) {
    Restart(2 * proto::kMaxChunkBytes);
    Begin();
    const Worker workers[] = {Open(0), Open(1)};
    std::vector<Piece> left = pieces;
    // A random order that keeps each contribution's pieces ascending.
    while (!left.empty()) {
      const Piece& pick = left[random() % left.size()];
      const auto next = std::find_if(left.begin(), left.end(), [&](const Piece& piece) {
        return piece.rank == pick.rank && piece.micro == pick.micro &&
               piece.parameter == pick.parameter;
      });
      ASSERT_TRUE(
          Push(workers[next->rank], next->parameter, next->offset, next->values, next->micro).ok());
      left.erase(next);
    }
    const uint32_t first = random() % 2;
    ASSERT_TRUE(Finish(workers[first]).ok());
    ASSERT_TRUE(Finish(workers[1 - first]).ok());
    const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
    ASSERT_TRUE(facts.has_value());
    if (order == 0) {
      expected = Gradient(kW);
      digest = facts->gradient_digest();
    }
    const std::vector<float> gradient = Gradient(kW);
    ASSERT_EQ(std::memcmp(gradient.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << "order " << order << " of seed " << kSeed;
    ASSERT_EQ(facts->gradient_digest(), digest);
  }
}

TEST_F(GradientAccumulatorTest, TakesEveryDtypeAndElementsSplitAcrossSlices) {
  for (v1::DType dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT16}) {
    Restart(2 * proto::kMaxChunkBytes);
    Begin();
    for (uint32_t rank : {0, 1}) {
      const Worker worker = Open(rank);
      const std::vector<std::byte> payload = Encode({1, -2, 0.5, 4, 8, 16}, dtype);
      std::vector<absl::Span<const std::byte>> slices;
      for (size_t at = 0; at < payload.size(); at += 3) {
        slices.push_back(absl::MakeConstSpan(payload).subspan(at, 3));
      }
      ASSERT_TRUE(
          accumulator_->AddChunk(worker.stream, Header(kW, 0, payload, dtype), slices).ok());
      ASSERT_TRUE(Finish(worker, {kB}).ok());
    }
    ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
    EXPECT_EQ(Gradient(kW), (std::vector<float>{1, -2, 0.5, 4, 8, 16})) << dtype;
  }
}

TEST_F(GradientAccumulatorTest, DropsAChunkThatIsRepeatedAndCreditsIt) {
  Begin();
  const Worker worker = Open(0);
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  EXPECT_EQ(*worker.credit, 16u);
  ASSERT_TRUE(Push(worker, kB, 2, {3, 4}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  ASSERT_TRUE(Finish(worker, {kW}).ok());
  ASSERT_TRUE(Finish(Open(1), {kW, kB}).ok());
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  EXPECT_EQ(Gradient(kB), (std::vector<float>{0.5, 1, 1.5, 2}));
}

TEST_F(GradientAccumulatorTest, RefusesOtherBytesForWhatItHas) {
  Begin();
  const Worker worker = Open(0);
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2}).ok());
  const absl::Status status = Push(worker, kB, 0, {1, 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("parameter b of rank 0"), absl::string_view::npos) << status;
  const std::vector<std::byte> payload = Encode({1, 2, 3, 4}, v1::DTYPE_BFLOAT16);
  v1::TensorChunk chunk = Header(kB, 0, payload, v1::DTYPE_BFLOAT16);
  chunk.set_num_elements(2);
  const std::vector<std::byte> half(payload.begin(), payload.begin() + 4);
  chunk.set_crc32c(proto::Crc32c(half.data(), half.size()));
  EXPECT_EQ(accumulator_->AddChunk(worker.stream, chunk, {absl::MakeConstSpan(half)}).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(GradientAccumulatorTest, RefusesGapsAndOverlapsNamingBothOffsets) {
  Begin();
  const Worker worker = Open(0);
  ASSERT_TRUE(Push(worker, kW, 0, {1, 2}).ok());
  ExpectInvalid(Push(worker, kW, 3, {1}), "gap: elements from 3 pushed, expecting from 2");
  ExpectInvalid(Push(worker, kW, 1, {2, 3}), "overlap: elements 1 .. 3 pushed, elements 0 .. 2");
  ExpectInvalid(Push(worker, kW, 0, {1}), "overlap: elements 0 .. 1 pushed, elements 0 .. 2");
}

TEST_F(GradientAccumulatorTest, RefusesABadChecksumBeforeAddingAnything) {
  Begin();
  const Worker worker = Open(0);
  std::vector<std::byte> payload = Encode({1, 2, 3, 4});
  const v1::TensorChunk chunk = Header(kB, 0, payload);
  payload[5] ^= std::byte{1};
  const absl::Status status =
      accumulator_->AddChunk(worker.stream, chunk, {absl::MakeConstSpan(payload)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Open(0).opened.received_size(), 0);
}

TEST_F(GradientAccumulatorTest, NamesWhatIsMalformedInAChunk) {
  Begin();
  const Worker worker = Open(0);
  const std::vector<std::byte> payload = Encode({1, 2});
  const auto push = [&](auto&& spoil) {
    v1::TensorChunk chunk = Header(kB, 0, payload);
    spoil(&chunk);
    return accumulator_->AddChunk(worker.stream, chunk, {absl::MakeConstSpan(payload)});
  };
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_parameter_id(3); }),
                "parameter_id is 3, expecting 0 .. 2");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_parameter_id(kFrozen); }),
                "parameter f is frozen");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_dtype(v1::DTYPE_UNSPECIFIED); }),
                "dtype 0 pushed");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(0); }), "num_elements is 0");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(1 << 19); }),
                "num_elements is 524288");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_num_elements(3); }),
                "payload has 8 bytes, expecting 12");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_offset(3); }),
                "offset 3 + 2 elements pushed, it has 4");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_offset(~uint64_t{0}); }),
                "elements pushed, it has 4");
  ExpectInvalid(push([](v1::TensorChunk* c) { c->set_micro_batch(1); }), "micro-batch 1 of rank 0");
}

TEST_F(GradientAccumulatorTest, NamesTheShardOfAParameterThatIsElsewhere) {
  v1::RegisterBody registration = registration_;
  registration.mutable_placement()->mutable_parameters(1)->set_shard(1);
  ASSERT_TRUE(accumulator_->Reserve(registration, 0).ok());
  Begin();
  ExpectInvalid(Push(Open(0), kB, 0, {1}), "parameter b is on shard 1");
}

TEST_F(GradientAccumulatorTest, StagesWhatComesEarlyAndCreditsItWhenItIsFolded) {
  Begin();
  const Worker late = Open(1);
  ASSERT_TRUE(Push(late, kB, 0, {1, 1}).ok());
  ASSERT_TRUE(Push(late, kB, 2, {1, 1}).ok());
  EXPECT_EQ(*late.credit, 0u);
  const Worker first = Open(0);
  ASSERT_TRUE(Push(first, kB, 0, {2, 2, 2}).ok());
  EXPECT_EQ(*first.credit, 12u);
  EXPECT_EQ(*late.credit, 8u);
  ASSERT_TRUE(Push(first, kB, 3, {2}).ok());
  EXPECT_EQ(*late.credit, 16u);
}

TEST_F(GradientAccumulatorTest, RefusesMoreThanTheCreditGranted) {
  v1::RegisterBody registration = registration_;
  const uint64_t chunk_elements = proto::kMaxChunkBytes / 4;
  registration.mutable_definition()->mutable_parameters(0)->clear_shape();
  registration.mutable_definition()->mutable_parameters(0)->add_shape(chunk_elements * 2);
  tier::HostTier host(64 << 20);
  tier::TieredStore store(host);
  GradientAccumulator::Options options{&store, backend_.get(), 2 * proto::kMaxChunkBytes,
                                       [](uint64_t) {}};
  GradientAccumulator accumulator(options);
  ASSERT_TRUE(accumulator.Reserve(registration, 0).ok());
  accumulator.ExpectStep({"gpt2", 1, 1});
  accumulator.BeginFolding(plan_, 1);
  const absl::StatusOr<OpenPush> push =
      accumulator.Open(OpenRequest(1), {[](uint64_t) {}, [](const absl::Status&) {}});
  ASSERT_TRUE(push.ok());
  EXPECT_EQ(push->opened.credit_bytes(), proto::kMaxChunkBytes);
  const std::vector<std::byte> payload = Encode(std::vector<float>(chunk_elements, 1));
  ASSERT_TRUE(
      accumulator.AddChunk(push->stream, Header(kW, 0, payload), {absl::MakeConstSpan(payload)})
          .ok());
  const std::vector<std::byte> more = Encode({1});
  const absl::Status status = accumulator.AddChunk(push->stream, Header(kW, chunk_elements, more),
                                                   {absl::MakeConstSpan(more)});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // A new stream is told what is still waiting.
  const absl::StatusOr<OpenPush> again =
      accumulator.Open(OpenRequest(1), {[](uint64_t) {}, [](const absl::Status&) {}});
  EXPECT_EQ(again->opened.credit_bytes(), 0u);
  EXPECT_EQ(again->opened.received(0).num_elements(), chunk_elements);
}

TEST_F(GradientAccumulatorTest, RefusesAFinishThatLeavesSomethingOut) {
  Begin();
  const Worker worker = Open(0);
  ASSERT_TRUE(Push(worker, kW, 0, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Push(worker, kB, 0, {1, 2, 3, 4}).ok());
  ExpectInvalid(Finish(worker),
                "parameter w of rank 0 micro-batch 0: finished with 4 elements, expecting 6");
  ExpectInvalid(Finish(worker, {kW}), "finished with 4 elements, expecting 0");
  ExpectInvalid(Finish(worker, {77}), "parameter_id is 77");
  ASSERT_TRUE(Push(worker, kW, 4, {5, 6}).ok());
  EXPECT_TRUE(Finish(worker).ok());
  EXPECT_TRUE(Finish(worker).ok());
}

TEST_F(GradientAccumulatorTest, KeepsTheDivisorWhenSomeWorkersHaveNoGradient) {
  Begin();
  const Worker late = Open(1);
  ASSERT_TRUE(Push(late, kB, 0, {4, 4, 4, 4}).ok());
  ASSERT_TRUE(Finish(late, {kW}).ok());
  EXPECT_EQ(*late.credit, 0u);
  ASSERT_TRUE(Finish(Open(0), {kW, kB}).ok());
  // What waited for the rank that has none no longer does.
  EXPECT_EQ(*late.credit, 16u);
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
  EXPECT_TRUE(facts->sums(0).missing());
  EXPECT_FALSE(facts->sums(1).missing());
  EXPECT_TRUE(Gradient(kW).empty());
}

TEST_F(GradientAccumulatorTest, NamesTheLowestRankWithANonFiniteGradient) {
  Begin();
  const float inf = std::numeric_limits<float>::infinity();
  const Worker late = Open(1);
  ASSERT_TRUE(Push(late, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(late, kB, 0, {1, inf, 1, 1}).ok());
  ASSERT_TRUE(Finish(late).ok());
  const Worker first = Open(0);
  ASSERT_TRUE(Push(first, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(first, kB, 0, {1, 1, 1, std::nanf("")}).ok());
  ASSERT_TRUE(Finish(first).ok());
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->first_non_finite().parameter_id(), kB);
  EXPECT_EQ(facts->first_non_finite().rank(), 0);
  EXPECT_EQ(facts->sums(1).num_non_finite(), 2u);
}

TEST_F(GradientAccumulatorTest, ReportsANonFiniteSumOfFiniteGradients) {
  Begin();
  const float max = std::numeric_limits<float>::max();
  for (uint32_t rank : {0, 1}) {
    const Worker worker = Open(rank);
    ASSERT_TRUE(Push(worker, kB, 0, {max, 1, 1, 1}).ok());
    ASSERT_TRUE(Finish(worker, {kW}).ok());
  }
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value() && facts->has_first_non_finite());
  EXPECT_EQ(facts->first_non_finite().rank(), -1);
}

TEST_F(GradientAccumulatorTest, CarriesTheLossesOfThoseWhoReportedOne) {
  Begin();
  PushAll(Open(0), 1);
  const Worker worker = Open(1);
  ASSERT_TRUE(Push(worker, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  v1::PushFinish finish;
  finish.add_missing_parameters(kB);
  finish.set_loss(2.5);
  ASSERT_TRUE(accumulator_->Finish(worker.stream, finish).ok());
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_EQ(facts->losses_size(), 1);
  EXPECT_EQ(facts->losses(0).rank(), 1u);
  EXPECT_EQ(facts->losses(0).loss(), 2.5);
}

TEST_F(GradientAccumulatorTest, TakesInitialWeightsOfEveryParameterAsTheyAre) {
  accumulator_->ExpectStep({"gpt2", 1, 0});
  v1::StepPlan load = LoadPlan(1, 1);
  load.mutable_step()->mutable_members(0)->set_token_weight(3);
  accumulator_->BeginFolding(load, 1);
  const absl::StatusOr<Worker> worker = TryOpen(OpenRequest(0, 0));
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE(Push(*worker, kW, 0, {1, 2, 3, 4, 5, -0.0f}).ok());
  ASSERT_TRUE(Push(*worker, kB, 0, {1, 2, 3, 4}).ok());
  ExpectInvalid(Finish(*worker, {kFrozen}), "parameter f: its initial weights");
  ExpectInvalid(Finish(*worker), "parameter f of rank 0");
  ASSERT_TRUE(Push(*worker, kFrozen, 0, {9, 9, 9, 9, 9}).ok());
  ASSERT_TRUE(Finish(*worker).ok());
  ASSERT_EQ(accumulator_->FinishSums(1)->sums_size(), 3);
  EXPECT_EQ(Gradient(kFrozen), std::vector<float>(5, 9));
  EXPECT_TRUE(std::signbit(Gradient(kW)[5]));
}

TEST_F(GradientAccumulatorTest, RefusesAnOpenThatDoesNotFit) {
  const auto code = [&](auto&& spoil) {
    v1::PushOpen open = OpenRequest(0);
    spoil(&open);
    return TryOpen(open).status().code();
  };
  EXPECT_EQ(code([](v1::PushOpen*) {}), absl::StatusCode::kUnavailable);
  Begin();
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_job("bert"); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_timeline(2); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_step(0); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_step(2); }), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->set_rank(2); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::PushOpen* o) { o->mutable_attempt()->set_number(9); }),
            absl::StatusCode::kAborted);
  EXPECT_EQ(code([](v1::PushOpen*) {}), absl::StatusCode::kOk);
}

TEST_F(GradientAccumulatorTest, RefusesGradientFromPastStepNamingBoth) {
  accumulator_->ExpectStep({"gpt2", 1, 42});
  EXPECT_EQ(TryOpen(OpenRequest(0, 41)).status().message(), "step 41 pushed, expecting 42");
}

TEST_F(GradientAccumulatorTest, EndsTheOlderStreamOfARank) {
  Begin();
  const Worker old = Open(0);
  const Worker worker = Open(0);
  ASSERT_EQ(old.ended->size(), 1u);
  EXPECT_EQ(old.ended->at(0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Push(old, kB, 0, {1}).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Push(worker, kB, 0, {1}).ok());
}

TEST_F(GradientAccumulatorTest, KeepsAPrefixOfUnchangedRanksWhenAStepIsReopened) {
  Begin();
  const Worker first = Open(0);
  PushAll(first, 1);
  const Worker replaced = Open(1);
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  EXPECT_EQ(first.ended->at(0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(replaced.ended->at(0).code(), absl::StatusCode::kAborted);
  const Worker again = Open(0);
  EXPECT_TRUE(again.opened.finished());
  EXPECT_EQ(again.opened.received_size(), 2);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  const absl::StatusOr<Worker> newcomer = TryOpen(open);
  ASSERT_TRUE(newcomer.ok()) << newcomer.status();
  EXPECT_EQ(newcomer->opened.received_size(), 0);
  PushAll(*newcomer, 3);
  EXPECT_EQ(folded_, std::vector<uint64_t>{2});
  EXPECT_FALSE(accumulator_->FinishSums(1).has_value());
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientAccumulatorTest, ClearsItsSumsWhenAReplacedRankIsFoldedIn) {
  Begin();
  PushAll(Open(0), 1);
  ASSERT_TRUE(Push(Open(1), kB, 0, {7}).ok());
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  const Worker first = Open(0);
  EXPECT_FALSE(first.opened.finished());
  EXPECT_EQ(first.opened.received_size(), 0);
  PushAll(first, 1);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  PushAll(*TryOpen(open), 3);
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientAccumulatorTest, ForgetsStagedChunksOfAReplacedRank) {
  Begin();
  ASSERT_TRUE(Push(Open(1), kB, 0, {7, 7, 7, 7}).ok());
  v1::StepPlan reopened = plan_;
  reopened.set_round(2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  accumulator_->BeginFolding(reopened, 2);
  v1::PushOpen open = OpenRequest(1);
  open.mutable_attempt()->set_number(9);
  const absl::StatusOr<Worker> newcomer = TryOpen(open);
  EXPECT_EQ(newcomer->opened.credit_bytes(), accumulator_->staging_window_bytes());
  PushAll(Open(0), 1);
  PushAll(*newcomer, 3);
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
}

TEST_F(GradientAccumulatorTest, WaitsForNobodyWhenItHasNothingToSum) {
  v1::RegisterBody registration = registration_;
  for (v1::ParameterPlacement& placement :
       *registration.mutable_placement()->mutable_parameters()) {
    placement.set_shard(1);
  }
  ASSERT_TRUE(accumulator_->Reserve(registration, 0).ok());
  Begin();
  EXPECT_EQ(folded_, std::vector<uint64_t>{1});
  EXPECT_TRUE(Finish(Open(0)).ok());
}

TEST_F(GradientAccumulatorTest, ReservesAllOrNothing) {
  tier::HostTier host(64 * 2);
  tier::TieredStore store(host);
  GradientAccumulator accumulator(
      {&store, backend_.get(), 2 * proto::kMaxChunkBytes, [](uint64_t) {}});
  const absl::Status status = accumulator.Reserve(registration_, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("20 bytes needed, 0 free = 128 capacity - 128 in use"),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(store.used_bytes(), 0u);
}

TEST_F(GradientAccumulatorTest, RefusesAJobWhoseWorkersGetLessThanAChunkOfStaging) {
  GradientAccumulator accumulator(
      {&store_, backend_.get(), proto::kMaxChunkBytes, [](uint64_t) {}});
  const absl::Status status = accumulator.Reserve(registration_, 0);
  EXPECT_EQ(status.message(),
            "staging_bytes: 1048576 / 2 workers = 524288 bytes each, expecting at least one chunk "
            "of 1048576");
}

TEST_F(GradientAccumulatorTest, EndsAndRefusesEverythingOnceClosed) {
  Begin();
  const Worker worker = Open(0);
  accumulator_->CloseAll(absl::DataLossError("lost"));
  EXPECT_EQ(worker.ended->at(0).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(TryOpen(OpenRequest(0)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::shard
