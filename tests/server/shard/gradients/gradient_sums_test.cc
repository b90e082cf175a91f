
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

using GradientSumsTest = AccumulatorFixture;

TEST_F(GradientSumsTest, DividesTheWeightedSumByTheTotalWeightAndTheLossScale) {
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

// The sums report each worker's gradient norm before its weight is applied (P11).
TEST_F(GradientSumsTest, TellsWhatEachWorkerPushedBeforeItIsWeighted) {
  plan_.mutable_step()->mutable_members(0)->set_token_weight(3);
  plan_.mutable_step()->set_loss_scale(2);
  plan_.mutable_step()->mutable_members(1)->set_micro_batches(2);
  Begin();
  PushAll(Open(0), 2);
  const PushingWorker second = Open(1);
  for (const uint32_t micro : {0, 1}) {
    ASSERT_TRUE(Push(second, kW, 0, std::vector<float>(6, 3), micro).ok());
    ASSERT_TRUE(Push(second, kB, 0, std::vector<float>(4, 0), micro).ok());
  }
  ASSERT_TRUE(Finish(second).ok());
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  ASSERT_EQ(facts->worker_sums_size(), 2);
  EXPECT_EQ(facts->worker_sums(0).rank(), 0u);
  EXPECT_EQ(facts->worker_sums(0).sum_squares(), 4 * (91 + 4));
  EXPECT_EQ(facts->worker_sums(1).rank(), 1u);
  EXPECT_EQ(facts->worker_sums(1).sum_squares(), 2 * 6 * 9);
}

TEST_F(GradientSumsTest, SaysNothingOfWorkersThatLoadWeights) {
  plan_ = LoadPlan(1, 1);
  Begin();
  const PushingWorker worker = Open(0);
  ASSERT_TRUE(Push(worker, kFrozen, 0, {9, 9, 9, 9, 9}).ok());
  PushAll(worker, 1);
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->worker_sums_size(), 0);
}

// The order of arrival does not change the bits of the sums (T17).
TEST_F(GradientSumsTest, GivesTheSameBitsForEveryOrderOfArrival) {
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
  std::vector<double> squares;
  for (int order = 0; order < 200; ++order) {
    Restart(2 * proto::kMaxChunkBytes);
    Begin();
    const PushingWorker workers[] = {Open(0), Open(1)};
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
      for (const v1::WorkerSum& sum : facts->worker_sums()) squares.push_back(sum.sum_squares());
      ASSERT_EQ(squares.size(), 2u);
    }
    for (const v1::WorkerSum& sum : facts->worker_sums()) {
      ASSERT_EQ(sum.sum_squares(), squares[sum.rank()]);
    }
    const std::vector<float> gradient = Gradient(kW);
    ASSERT_EQ(std::memcmp(gradient.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << "order " << order << " of seed " << kSeed;
    ASSERT_EQ(facts->gradient_digest(), digest);
  }
}

TEST_F(GradientSumsTest, GivesTheSameBitsWhenWorkersPushAtOnce) {
  const std::vector<float> big = {1e8f, 1, -1e8f, 3, 1e-8f, 7};
  const std::vector<float> small = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  std::vector<float> expected;
  for (int run = 0; run < 20; ++run) {
    Restart(2 * proto::kMaxChunkBytes);
    Begin();
    const PushingWorker workers[] = {Open(0), Open(1)};
    std::vector<std::thread> threads;
    for (int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        const std::vector<float>& values = rank == 0 ? big : small;
        for (uint64_t i = 0; i < values.size(); ++i) {
          EXPECT_TRUE(Push(workers[rank], kW, i, {values[i]}).ok());
        }
        EXPECT_TRUE(Finish(workers[rank], {kB}).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(folded_, std::vector<uint64_t>{1});
    ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
    if (run == 0) expected = Gradient(kW);
    ASSERT_EQ(Gradient(kW), expected) << "run " << run;
  }
}

// The number of pushing threads does not change the bits of the sums (T17).
TEST_F(GradientSumsTest, GivesTheSameBitsForAnyNumberOfPushingThreads) {
  constexpr uint32_t kWorkers = 8;
  std::mt19937 random(11);
  registration_.mutable_definition()->set_world_size(kWorkers);
  v1::StepBody& step = *plan_.mutable_step();
  for (uint32_t rank = 2; rank < kWorkers; ++rank) {
    v1::Member& member = *step.add_members();
    member = step.members(1);
    member.set_rank(rank);
    member.mutable_attempt()->set_number(rank + 1);
    member.set_token_weight(0.3 * rank);
  }
  std::vector<float> expected;
  uint64_t digest = 0;
  for (const size_t num_threads : {1, 2, 8, 8, 2, 8}) {
    Restart(kWorkers * proto::kMaxChunkBytes);
    Begin();
    std::vector<PushingWorker> workers;
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      workers.push_back(Open(rank));
      ranks.push_back(rank);
    }
    std::shuffle(ranks.begin(), ranks.end(), random);
    const auto push = [&](size_t thread) {
      for (size_t i = thread; i < ranks.size(); i += num_threads) {
        const uint32_t rank = ranks[i];
        for (uint64_t at = 0; at < 6; ++at) {
          const float value = std::ldexp(1.0f + rank * 0.37f, static_cast<int>(7 * at + rank) - 20);
          EXPECT_TRUE(Push(workers[rank], kW, at, {value}).ok());
        }
        EXPECT_TRUE(Finish(workers[rank], {kB}).ok());
      }
    };
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < num_threads; ++thread) threads.emplace_back(push, thread);
    for (std::thread& thread : threads) thread.join();
    const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
    ASSERT_TRUE(facts.has_value());
    if (expected.empty()) {
      expected = Gradient(kW);
      digest = facts->gradient_digest();
    }
    ASSERT_EQ(Gradient(kW), expected) << num_threads << " threads";
    ASSERT_EQ(facts->gradient_digest(), digest);
  }
}

TEST_F(GradientSumsTest, TakesEveryDtypeAndElementsSplitAcrossSlices) {
  for (v1::DType dtype : {v1::DTYPE_FLOAT32, v1::DTYPE_BFLOAT16, v1::DTYPE_FLOAT16}) {
    Restart(2 * proto::kMaxChunkBytes);
    Begin();
    for (uint32_t rank : {0, 1}) {
      const PushingWorker worker = Open(rank);
      const std::vector<std::byte> payload = Encode({1, -2, 0.5, 4, 8, 16}, dtype);
      std::vector<absl::Span<const std::byte>> slices;
      for (size_t at = 0; at < payload.size(); at += 3) {
        slices.push_back(absl::MakeConstSpan(payload).subspan(at, 3));
      }
      ASSERT_TRUE(AddOne(*accumulator_, worker.stream, Header(kW, 0, payload, dtype), slices).ok());
      ASSERT_TRUE(Finish(worker, {kB}).ok());
    }
    ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
    EXPECT_EQ(Gradient(kW), (std::vector<float>{1, -2, 0.5, 4, 8, 16})) << dtype;
  }
}

TEST_F(GradientSumsTest, KeepsTheDivisorWhenSomeWorkersHaveNoGradient) {
  Begin();
  const PushingWorker late = Open(1);
  ASSERT_TRUE(Push(late, kB, 0, {4, 4, 4, 4}).ok());
  ASSERT_TRUE(Finish(late, {kW}).ok());
  EXPECT_EQ(*late.credit, 0u);
  ASSERT_TRUE(Finish(Open(0), {kW, kB}).ok());
  // Chunks that waited for the rank without a gradient are folded now.
  EXPECT_EQ(*late.credit, 16u);
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(Gradient(kB), std::vector<float>(4, 2));
  EXPECT_TRUE(facts->sums(0).missing());
  EXPECT_FALSE(facts->sums(1).missing());
  EXPECT_TRUE(Gradient(kW).empty());
}

TEST_F(GradientSumsTest, NamesTheLowestRankWithANonFiniteGradient) {
  Begin();
  const float inf = std::numeric_limits<float>::infinity();
  const PushingWorker late = Open(1);
  ASSERT_TRUE(Push(late, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(late, kB, 0, {1, inf, 1, 1}).ok());
  ASSERT_TRUE(Finish(late).ok());
  const PushingWorker first = Open(0);
  ASSERT_TRUE(Push(first, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(first, kB, 0, {1, 1, 1, std::nanf("")}).ok());
  ASSERT_TRUE(Finish(first).ok());
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->first_non_finite().parameter_id(), kB);
  EXPECT_EQ(facts->first_non_finite().rank(), 0);
  EXPECT_EQ(facts->sums(1).num_non_finite(), 2u);
}

TEST_F(GradientSumsTest, ReportsANonFiniteSumOfFiniteGradients) {
  Begin();
  const float max = std::numeric_limits<float>::max();
  for (uint32_t rank : {0, 1}) {
    const PushingWorker worker = Open(rank);
    ASSERT_TRUE(Push(worker, kB, 0, {max, 1, 1, 1}).ok());
    ASSERT_TRUE(Finish(worker, {kW}).ok());
  }
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value() && facts->has_first_non_finite());
  EXPECT_EQ(facts->first_non_finite().rank(), -1);
}

TEST_F(GradientSumsTest, CarriesTheLossesOfThoseWhoReportedOne) {
  Begin();
  PushAll(Open(0), 1);
  const PushingWorker worker = Open(1);
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

TEST_F(GradientSumsTest, TakesInitialWeightsOfEveryParameterAsTheyAre) {
  accumulator_->ExpectStep({"gpt2", 1, 0});
  v1::StepPlan load = LoadPlan(1, 1);
  load.mutable_step()->mutable_members(0)->set_token_weight(3);
  accumulator_->BeginFolding(load, 1);
  const absl::StatusOr<PushingWorker> worker = TryOpen(OpenRequest(0, 0));
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

}  // namespace
}  // namespace kaon::shard
