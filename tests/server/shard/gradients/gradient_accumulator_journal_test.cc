// The slices and records that the accumulator gives to the journal.
#include <gtest/gtest.h>

#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"
#include "tests/server/shard/recorded_journal.h"

namespace kaon::shard {
namespace {

class GradientAccumulatorJournalTest : public AccumulatorFixture {
 protected:
  std::vector<journal::GradientSlice> Append(uint64_t generation) {
    accumulator_->AppendGradient(
        generation, [this](const journal::GradientSlice& slice) { journal_.Append(slice); });
    return journal_.All<journal::GradientSlice>();
  }
  static std::vector<float> ValuesOf(const journal::GradientSlice& slice) {
    return {slice.values.begin(), slice.values.end()};
  }

  RecordedJournal journal_;
};

TEST_F(GradientAccumulatorJournalTest, AppendsFinishedGradientsByParameterAndLeavesFrozenOnesOut) {
  Begin();
  PushAll(Open(0), 1);
  PushAll(Open(1), 3);
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  const std::vector<journal::GradientSlice> slices = Append(1);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].parameter_id, kW);
  EXPECT_EQ(slices[0].position, plan_.position());
  EXPECT_EQ(slices[0].generation, 1u);
  EXPECT_EQ(ValuesOf(slices[0]), Gradient(kW));
  EXPECT_EQ(slices[1].parameter_id, kB);
  EXPECT_EQ(ValuesOf(slices[1]), std::vector<float>(4, 2));
}

// Room 5 begins while other parameters are still pushed.
TEST_F(GradientAccumulatorJournalTest, AppendsAParameterOnceNothingMoreOfItCanCome) {
  Begin();
  const PushingWorker first = Open(0);
  const PushingWorker second = Open(1);
  ASSERT_TRUE(Push(first, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(second, kW, 0, {3, 6, 9}).ok());
  EXPECT_TRUE(folded_parameters_.empty());
  ASSERT_TRUE(Push(second, kW, 3, {12, 15, 18}).ok());
  ASSERT_EQ(folded_parameters_, (std::vector<std::pair<uint64_t, uint32_t>>{{1, kW}}));
  std::vector<journal::GradientSlice> early;
  const auto append = [&early](const journal::GradientSlice& slice) { early.push_back(slice); };
  EXPECT_FALSE(accumulator_->FinishParameter(2, kW, append));
  EXPECT_TRUE(accumulator_->FinishParameter(1, kW, append));
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].parameter_id, kW);
  EXPECT_EQ(early[0].generation, 1u);
  EXPECT_EQ(ValuesOf(early[0]), (std::vector<float>{2, 4, 6, 8, 10, 12}));

  ASSERT_TRUE(Push(first, kB, 0, {1, 1, 1, 1}).ok());
  ASSERT_TRUE(Finish(first).ok());
  ASSERT_TRUE(Push(second, kB, 0, {3, 3, 3, 3}).ok());
  ASSERT_TRUE(Finish(second).ok());
  const std::optional<v1::Prepared> facts = accumulator_->FinishSums(1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->sums(0).sum_squares(), 4 * 91.0);
  const std::vector<journal::GradientSlice> rest = Append(1);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].parameter_id, kB);

  // The same facts as of gradients that are all finished together.
  Restart(2 * proto::kMaxChunkBytes);
  Begin();
  PushAll(Open(0), 1);
  PushAll(Open(1), 3);
  EXPECT_EQ(accumulator_->FinishSums(1)->SerializeAsString(), facts->SerializeAsString());
}

TEST_F(GradientAccumulatorJournalTest, WaitsForAWorkerThatMayStillHaveNoGradient) {
  Begin();
  const PushingWorker first = Open(0);
  const PushingWorker second = Open(1);
  ASSERT_TRUE(Push(first, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(second, kB, 0, {3, 3, 3, 3}).ok());
  EXPECT_TRUE(folded_parameters_.empty());
  ASSERT_TRUE(Finish(second, {kW}).ok());
  EXPECT_EQ(folded_parameters_, (std::vector<std::pair<uint64_t, uint32_t>>{{1, kW}}));
}

// Rule 8: "A shard keeps its sums iff what is folded is a rank-order prefix of unchanged attempts."
// A divided sum is no such prefix.
TEST_F(GradientAccumulatorJournalTest, KeepsNothingOnceASumIsDivided) {
  Begin();
  ASSERT_TRUE(Push(Open(0), kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(Open(1), kW, 0, {3, 6, 9, 12, 15, 18}).ok());
  ASSERT_TRUE(accumulator_->FinishParameter(1, kW, [](const journal::GradientSlice&) {}));
  plan_.set_round(2);
  plan_.mutable_step()->mutable_rates(0)->set_learning_rate(0.5);
  accumulator_->BeginFolding(plan_, 2);
  EXPECT_EQ(Open(0).opened.received_size(), 0);
}

// The journal has no slices of a parameter that no worker has a gradient for ([T7]).
TEST_F(GradientAccumulatorJournalTest, LeavesOutWhatNoWorkerHadAGradientFor) {
  Begin();
  for (uint32_t rank : {0, 1}) {
    const PushingWorker worker = Open(rank);
    ASSERT_TRUE(Push(worker, kB, 0, {1, 2, 3, 4}).ok());
    ASSERT_TRUE(Finish(worker, {kW}).ok());
  }
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  const std::vector<journal::GradientSlice> slices = Append(1);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].parameter_id, kB);
}

TEST_F(GradientAccumulatorJournalTest, AppendsNothingOfAnotherGenerationOrBeforeAllIsFolded) {
  Begin();
  EXPECT_TRUE(Append(1).empty());
  PushAll(Open(0), 1);
  PushAll(Open(1), 1);
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  EXPECT_TRUE(Append(2).empty());
  EXPECT_EQ(Append(1).size(), 2u);
}

TEST(LargeGradientTest, IsCutIntoSlicesOfAMebibyteAscendingWithoutGaps) {
  constexpr uint64_t kElements = (uint64_t{2} << 18) + 5;
  ShardMemory memory(8 << 20);
  GradientAccumulator::Options options;
  options.store = &memory.store();
  options.backend = &memory.backend();
  options.staging = &memory.host();
  options.staging_bytes = 2 * proto::kMaxChunkBytes;
  options.on_folded = [](uint64_t) {};
  options.on_parameter_folded = [](uint64_t, uint32_t) {};
  GradientAccumulator accumulator(options);
  v1::RegisterBody registration = MakeRegistration();
  registration.mutable_definition()->mutable_parameters(kB)->set_shape(0, kElements);
  ASSERT_TRUE(accumulator.Reserve(registration, 0).ok());
  accumulator.ExpectStep({"gpt2", 1, 1});
  v1::StepPlan plan = TrainPlan(1, 1, 1);
  plan.mutable_step()->mutable_members()->RemoveLast();
  accumulator.BeginFolding(plan, 7);
  v1::PushOpen open;
  open.set_job("gpt2");
  open.set_timeline(1);
  open.set_step(1);
  *open.mutable_attempt() = plan.step().members(0).attempt();
  const absl::StatusOr<OpenPush> push =
      accumulator.Open(open, {[](uint64_t) {}, [](const absl::Status&) {}});
  ASSERT_TRUE(push.ok()) << push.status();
  std::vector<float> values(kElements);
  for (uint64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i);
  constexpr uint64_t kChunk = proto::kMaxChunkBytes / sizeof(float);
  for (uint64_t offset = 0; offset < kElements; offset += kChunk) {
    const auto part = absl::MakeConstSpan(values).subspan(offset, kChunk);
    const auto payload = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(part.data()),
                                             part.size() * sizeof(float));
    v1::TensorChunk chunk;
    chunk.set_parameter_id(kB);
    chunk.set_offset(offset);
    chunk.set_num_elements(part.size());
    chunk.set_dtype(v1::DTYPE_FLOAT32);
    chunk.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
    ASSERT_TRUE(
        accumulator.AddChunks(push->stream, {{&chunk, absl::MakeConstSpan(&payload, 1)}}).ok());
  }
  v1::PushFinish finish;
  finish.add_missing_parameters(kW);
  ASSERT_TRUE(accumulator.Finish(push->stream, finish).ok());
  ASSERT_TRUE(accumulator.FinishSums(7).has_value());
  std::vector<float> appended;
  std::vector<size_t> sizes;
  accumulator.AppendGradient(7, [&](const journal::GradientSlice& slice) {
    EXPECT_EQ(slice.offset, appended.size());
    sizes.push_back(slice.values.size());
    appended.insert(appended.end(), slice.values.begin(), slice.values.end());
  });
  EXPECT_EQ(sizes, (std::vector<size_t>{1 << 18, 1 << 18, 5}));
  EXPECT_EQ(appended, values);
}

}  // namespace
}  // namespace kaon::shard
