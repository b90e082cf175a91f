#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

using GradientAccumulatorSumsTest = AccumulatorFixture;

TEST_F(GradientAccumulatorSumsTest, ReservesAllOrNothing) {
  const uint64_t capacity = 2 * ShardMemory::least_extent();
  ShardMemory memory(capacity);
  GradientAccumulator accumulator({&memory.store(), &memory.backend(), 2 * proto::kMaxChunkBytes,
                                   [](uint64_t) {}, [](uint64_t, uint32_t) {}});
  const absl::Status status = accumulator.Reserve(registration_, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(absl::StrCat("20 bytes needed, 0 free = ", capacity,
                                               " capacity - ", capacity, " in use")),
            absl::string_view::npos)
      << status;
  EXPECT_EQ(memory.store().used_bytes(), 0u);
}

TEST_F(GradientAccumulatorSumsTest, RefusesAJobWhoseWorkersGetLessThanAChunkOfStaging) {
  GradientAccumulator accumulator({&memory_.store(), &memory_.backend(), proto::kMaxChunkBytes,
                                   [](uint64_t) {}, [](uint64_t, uint32_t) {}});
  const absl::Status status = accumulator.Reserve(registration_, 0);
  EXPECT_EQ(status.message(),
            "staging_bytes: 1048576 / 2 workers = 524288 bytes each, expecting at least one chunk "
            "of 1048576");
}

TEST_F(GradientAccumulatorSumsTest, ReplacesASumBetweenTwoPlans) {
  Begin();
  PushAll(Open(0), 1);
  accumulator_->ExpectStep({"gpt2", 1, 2});
  auto sum = accumulator_->ReserveSum(kW, ShardMemory::is_nvme());
  if (!ShardMemory::is_nvme()) {
    // The store has its name already.
    EXPECT_EQ(sum.status().code(), absl::StatusCode::kAlreadyExists);
    return;
  }
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sums_.file_bytes(), 4 * disk::kBlockBytes);
  accumulator_->ReplaceSum(kW, *std::move(sum));
  EXPECT_EQ(sums_.file_bytes(), 3 * disk::kBlockBytes);
  plan_.mutable_step()->set_step(2);
  accumulator_->BeginFolding(plan_, 2);
  for (const uint32_t rank : {0, 1}) {
    const absl::StatusOr<PushingWorker> worker = TryOpen(OpenRequest(rank, 2));
    ASSERT_TRUE(worker.ok()) << worker.status();
    PushAll(*worker, 4);
  }
  ASSERT_TRUE(accumulator_->FinishSums(2).has_value());
  EXPECT_EQ(Gradient(kW), (std::vector<float>{4, 8, 12, 16, 20, 24}));
}

}  // namespace
}  // namespace kaon::shard
