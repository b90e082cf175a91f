#include "server/shard/gradients/parameter_fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "proto/crc32c.h"

namespace kaon::shard {
namespace {

constexpr uint64_t kRoom = 1 << 20;

class ParameterFoldTest : public testing::Test {
 protected:
  ParameterFoldTest() {
    kernels::BackendOptions options;
    options.gemm = "reference";
    backend_ = *kernels::CreateBackend(options);
    fold_ = std::make_unique<ParameterFold>(7, "w", kernels::Region(sum_), *backend_);
  }

  static std::vector<v1::Member> Members(int count, uint32_t micro_batches = 1) {
    std::vector<v1::Member> members(count);
    for (int i = 0; i < count; ++i) {
      members[i].set_rank(i);
      members[i].set_token_weight(1);
      members[i].set_micro_batches(micro_batches);
    }
    return members;
  }
  absl::Status Add(uint32_t rank, uint64_t offset, const std::vector<float>& values,
                   uint32_t micro = 0, uint64_t room = kRoom) {
    v1::TensorChunk chunk;
    chunk.set_micro_batch(micro);
    chunk.set_offset(offset);
    chunk.set_num_elements(values.size());
    chunk.set_dtype(v1::DTYPE_FLOAT32);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    chunk.set_crc32c(proto::Crc32c(bytes, values.size() * 4) ^ flipped_);
    return fold_->Add(rank, chunk, {absl::MakeConstSpan(bytes, values.size() * 4)}, room,
                      &released_);
  }

  // Bits of the checksum that flip once a chunk's bytes have arrived.
  uint32_t flipped_ = 0;
  std::vector<float> sum_ = std::vector<float>(4, 77);
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<ParameterFold> fold_;
  std::vector<ReleasedBytes> released_;
};

TEST_F(ParameterFoldTest, OverwritesWhatTheMemoryHeld) {
  fold_->Expect(Members(1), false);
  ASSERT_TRUE(Add(0, 0, {1, 2, 3, 4}).ok());
  EXPECT_EQ(sum_, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(fold_->IsComplete());
}

TEST_F(ParameterFoldTest, FoldsAContributionAsFarAsTheOneBefore) {
  fold_->Expect(Members(2), false);
  ASSERT_TRUE(Add(0, 0, {1, 1}).ok());
  ASSERT_TRUE(Add(1, 0, {10, 10}).ok());
  EXPECT_EQ(sum_, (std::vector<float>{11, 11, 77, 77}));
  // The chunk extends beyond that of rank 0, so all of it waits.
  ASSERT_TRUE(Add(1, 2, {10, 10}).ok());
  ASSERT_TRUE(Add(0, 2, {1}).ok());
  EXPECT_EQ(fold_->StagedBytes(1), 8u);
  ASSERT_TRUE(Add(0, 3, {1}).ok());
  EXPECT_EQ(sum_, std::vector<float>(4, 11));
  EXPECT_EQ(fold_->StagedBytes(1), 0u);
}

// T18: the caller has checked the bytes, and they changed while they waited for an earlier rank.
TEST_F(ParameterFoldTest, EndsTheProcessRatherThanFoldBytesThatChangedInMemory) {
  fold_->Expect(Members(2), false);
  flipped_ = 1;
  ASSERT_TRUE(Add(1, 0, {10, 10, 10, 10}).ok());
  flipped_ = 0;
  EXPECT_DEATH(static_cast<void>(Add(0, 0, {1, 1, 1, 1})),
               "parameter w of rank 1 micro-batch 0: elements from 0 have CRC32C [0-9a-f]{8} in "
               "memory, taken with");
}

TEST_F(ParameterFoldTest, OneChunkMayFreeAWholeChainOfRanks) {
  fold_->Expect(Members(3, 2), false);
  for (uint32_t rank : {2, 1, 0}) {
    for (uint32_t micro : {1, 0}) {
      if (rank == 0 && micro == 0) continue;
      ASSERT_TRUE(Add(rank, 0, {1, 1, 1, 1}, micro).ok());
    }
  }
  EXPECT_TRUE(released_.empty());
  ASSERT_TRUE(Add(0, 0, {1, 1, 1, 1}, 0).ok());
  EXPECT_EQ(released_.size(), 6u);
  EXPECT_TRUE(fold_->IsComplete());
  EXPECT_EQ(sum_, std::vector<float>(4, 6));
}

// P11: the transport may cut anywhere, even between the bytes of an element.
TEST_F(ParameterFoldTest, GivesTheSameBitsWhereverTheBytesAreCut) {
  std::mt19937 random(3);
  std::vector<float> values(5 * kernels::kFoldBlockElements + 123);
  for (float& value : values) value = std::ldexp(1.1f, static_cast<int>(random() % 40) - 20);
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(values.data()),
                                          values.size() * 4);
  v1::TensorChunk chunk;
  chunk.set_num_elements(values.size());
  chunk.set_dtype(v1::DTYPE_FLOAT32);
  chunk.set_crc32c(proto::Crc32c(bytes.data(), bytes.size()));
  double expected = 0;
  for (const size_t longest : {bytes.size(), size_t{1}, size_t{100}, size_t{4096}, size_t{9000}}) {
    std::vector<absl::Span<const std::byte>> slices;
    for (size_t at = 0; at < bytes.size(); at += slices.back().size()) {
      slices.push_back(
          bytes.subspan(at, longest == bytes.size() ? longest : 1 + random() % longest));
    }
    std::vector<float> sum(values.size());
    ParameterFold fold(7, "w", kernels::Region(sum), *backend_);
    fold.Expect(Members(1), false);
    ASSERT_TRUE(fold.Add(0, chunk, slices, bytes.size(), &released_).ok());
    ASSERT_EQ(sum, values) << longest;
    fold.Finish({});
    std::map<uint32_t, double> squares;
    fold.AddSumSquares(&squares);
    if (slices.size() == 1) expected = squares[0];
    ASSERT_EQ(squares[0], expected) << longest;
  }
  EXPECT_GT(expected, 0);
}

TEST_F(ParameterFoldTest, AMissingRankBetweenTwoHoldsNothingUp) {
  fold_->Expect(Members(3), false);
  ASSERT_TRUE(Add(2, 0, {4, 4, 4, 4}).ok());
  ASSERT_TRUE(Add(0, 0, {1, 1, 1, 1}).ok());
  EXPECT_FALSE(fold_->IsComplete());
  fold_->MarkMissing(1, &released_);
  EXPECT_TRUE(fold_->IsComplete());
  EXPECT_EQ(sum_, std::vector<float>(4, 5));
}

// A part of a gradient must never pass for all of it.
TEST_F(ParameterFoldTest, FinishesOnlyWhatIsComplete) {
  fold_->Expect(Members(2), false);
  ASSERT_TRUE(Add(0, 0, {1, 1, 1, 1}).ok());
  ASSERT_TRUE(Add(1, 0, {1, 1, 1}).ok());
  EXPECT_DEATH(fold_->Finish({2, 1}), "parameter w: its sum is not complete");
  ASSERT_TRUE(Add(1, 3, {1}).ok());
  EXPECT_EQ(fold_->Finish({2, 1}).num_elements(), 4u);
}

TEST_F(ParameterFoldTest, TakesNothingOfARankThatFinishedAsMissing) {
  fold_->Expect(Members(2), false);
  fold_->MarkMissing(0, &released_);
  EXPECT_EQ(Add(0, 0, {1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(fold_->CheckFinished(0, true).ok());
  EXPECT_EQ(fold_->CheckFinished(0, false).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ParameterFoldTest, StagesNothingBeyondItsRoom) {
  fold_->Expect(Members(2), false);
  EXPECT_EQ(Add(1, 0, {1, 1}, 0, 7).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Add(1, 0, {1, 1}, 0, 8).ok());
  // A chunk that need not wait needs no room.
  EXPECT_TRUE(Add(0, 0, {1, 1}, 0, 0).ok());
}

TEST_F(ParameterFoldTest, KeepsUnchangedMembersWhenOthersAreReplaced) {
  fold_->Expect(Members(2), false);
  ASSERT_TRUE(Add(0, 0, {1, 1, 1, 1}).ok());
  EXPECT_FALSE(fold_->HasFoldedBeyond(1));
  EXPECT_TRUE(fold_->HasFoldedBeyond(0));
  std::vector<v1::Member> members = Members(2);
  members[1].set_token_weight(3);
  fold_->ReplaceMembersFrom(1, members);
  ASSERT_TRUE(Add(1, 0, {2, 2, 2, 2}).ok());
  EXPECT_EQ(sum_, std::vector<float>(4, 7));
  EXPECT_TRUE(fold_->HasFoldedBeyond(1));
}

// A member that is removed without a replacement loses its chunks (T21).
TEST_F(ParameterFoldTest, ForgetsMembersThatAreReplacedByNobody) {
  fold_->Expect(Members(3), false);
  ASSERT_TRUE(Add(0, 0, {1, 1, 1}).ok());
  ASSERT_TRUE(Add(1, 3, {9}).code() == absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(Add(2, 0, {9, 9, 9, 9}).ok());
  fold_->ReplaceMembersFrom(1, Members(1));
  ASSERT_TRUE(Add(0, 3, {1}).ok());
  EXPECT_TRUE(fold_->IsComplete());
  EXPECT_EQ(sum_, std::vector<float>(4, 1));
}

TEST_F(ParameterFoldTest, LoadedWeightsAreNotWeighted) {
  std::vector<v1::Member> members = Members(1);
  members[0].set_token_weight(5);
  fold_->Expect(members, true);
  ASSERT_TRUE(Add(0, 0, {1, 2, 3, 4}).ok());
  EXPECT_EQ(sum_, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(ParameterFoldTest, WithoutAnyGradientItDescribesAMissingParameter) {
  fold_->Expect(Members(2), false);
  fold_->MarkMissing(0, &released_);
  fold_->MarkMissing(1, &released_);
  const v1::ParameterSums sums = fold_->Finish({2, 1});
  EXPECT_TRUE(sums.missing());
  EXPECT_EQ(sums.sum_squares(), 0);
  EXPECT_FALSE(fold_->first_non_finite_rank().has_value());
}

// The group's policy is zero ([T7]): zeros are stepped with, whatever the memory held. Edge 29: an
// expert without tokens.
TEST_F(ParameterFoldTest, ZerosStandInForWhatNobodySentWhereTheGroupSaysSo) {
  fold_->Expect(Members(2), false);
  fold_->MarkMissing(0, &released_);
  fold_->MarkMissing(1, &released_);
  const v1::ParameterSums sums = fold_->Finish({1, 1}, {true, true});
  EXPECT_FALSE(sums.missing());
  EXPECT_FALSE(fold_->missing());
  EXPECT_EQ(sums.num_zeros(), 4u);
  EXPECT_EQ(sums.sum_squares(), 0);
  EXPECT_EQ(sum_, std::vector<float>(4, 0));
  // The zeros applied to that step only.
  fold_->Expect(Members(1), false);
  fold_->MarkMissing(0, &released_);
  EXPECT_TRUE(fold_->Finish({1, 1}).missing());
}

// Values that are not finite are found without the sum of squares ([T3], [T5]).
TEST_F(ParameterFoldTest, FindsWhatIsNotFiniteWhenNobodyReadsTheNorm) {
  fold_->Expect(Members(2), false);
  ASSERT_TRUE(Add(0, 0, {3e38f, 0, 5, 1}).ok());
  ASSERT_TRUE(Add(1, 0, {3e38f, 0, 5, 1}).ok());
  const v1::ParameterSums sums = fold_->Finish({1, 1}, {false, false});
  EXPECT_EQ(sums.sum_squares(), 0);
  EXPECT_EQ(sums.num_non_finite(), 1u);
  EXPECT_EQ(sums.num_zeros(), 1u);
  EXPECT_EQ(fold_->first_non_finite_rank(), -1);
}

TEST_F(ParameterFoldTest, StandsRestoredAsIfEveryMemberHadSentTheSum) {
  sum_ = {1, 2, 3, 4};
  v1::ParameterSums sums;
  sums.set_sum_squares(4);
  fold_->Restore(Members(2, 2), false, sums);
  EXPECT_TRUE(fold_->IsComplete());
  EXPECT_FALSE(fold_->missing());
  EXPECT_TRUE(fold_->CheckFinished(1, false).ok());
  // It is divided already.
  EXPECT_EQ(fold_->Finish({2, 1}).sum_squares(), 4);
  // The fold does not know its chunks, so every chunk counts as a repetition.
  EXPECT_TRUE(Add(1, 2, {9, 9}, 1).ok());
  ASSERT_EQ(released_.size(), 1u);
  EXPECT_EQ(sum_, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(ParameterFoldTest, StandsRestoredAsMissing) {
  v1::ParameterSums sums;
  sums.set_missing(true);
  fold_->Restore(Members(2), false, sums);
  EXPECT_TRUE(fold_->IsComplete());
  EXPECT_TRUE(fold_->missing());
  EXPECT_TRUE(fold_->CheckFinished(0, true).ok());
}

}  // namespace
}  // namespace kaon::shard
