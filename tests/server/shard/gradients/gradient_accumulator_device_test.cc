// Chunks that arrive in memory of the backend: those in turn fold from there, others from a copy on
// the host. Either way, the sums have the bits of chunks that arrive on the host.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/nccl/device_link.h"
#include "kernels/tensor.h"
#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

struct Piece {
  uint32_t parameter = 0;
  std::vector<float> values;
};

const std::vector<Piece> kFirst = {{kW, {0.1f, 2, 3, 4, 5, 6}}, {kB, {0.7f, 2, 3, 4}}};
const std::vector<Piece> kSecond = {{kW, {1, 0.3f, 1, 1, 1, 1}}, {kB, {1, 1, 0.9f, 1}}};

class GradientAccumulatorDeviceTest : public AccumulatorFixture {
 protected:
  GradientAccumulatorDeviceTest() { Begin(); }

  // Pushes a message whose payloads are in memory that is gone afterwards. `spoil` changes what the
  // digest says.
  absl::Status PushInMemory(const PushingWorker& worker, const std::vector<Piece>& pieces,
                            uint64_t spoil = 0) {
    std::vector<v1::TensorChunk> headers;
    std::vector<std::byte> all;
    for (const Piece& piece : pieces) {
      const std::vector<std::byte> payload = Encode(piece.values);
      headers.push_back(Header(piece.parameter, 0, payload));
      headers.back().clear_crc32c();
      all.insert(all.end(), payload.begin(), payload.end());
    }
    std::vector<proto::ChunkView> views;
    for (const v1::TensorChunk& header : headers) views.push_back({&header, {}});
    const kernels::Tensor memory(memory_.backend(), all);
    const uint64_t digest = memory_.backend().Digest(headers[0].parameter_id(),
                                                     kernels::kTransferSlot, memory.region());
    return accumulator_->AddChunks(worker.stream, views, {memory.region(), digest ^ spoil});
  }
  void PushPieces(const PushingWorker& worker, const std::vector<Piece>& pieces, bool in_memory) {
    if (in_memory) {
      ASSERT_TRUE(PushInMemory(worker, pieces).ok());
    } else {
      for (const Piece& piece : pieces) {
        ASSERT_TRUE(Push(worker, piece.parameter, 0, piece.values).ok());
      }
    }
    ASSERT_TRUE(Finish(worker).ok());
  }
  // Copies out of the device so far; none on the host.
  uint64_t Copies() { return memory_.device() == nullptr ? 0 : memory_.device()->copies_out(); }
};

TEST_F(GradientAccumulatorDeviceTest, EndsInTheBitsOfPayloadsOnTheHostInAnyOrder) {
  std::vector<std::vector<float>> gradients;
  for (const bool in_memory : {false, true}) {
    for (const bool later_first : {false, true}) {
      Restart(2 * proto::kMaxChunkBytes);
      Begin();
      const PushingWorker first = Open(0);
      const PushingWorker second = Open(1);
      const uint64_t before = Copies();
      if (later_first) PushPieces(second, kSecond, in_memory);
      PushPieces(first, kFirst, in_memory);
      if (!later_first) PushPieces(second, kSecond, in_memory);
      if (memory_.device() != nullptr) {
        EXPECT_EQ(Copies() - before, in_memory && later_first ? 2u : 0u);
      }
      ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
      for (const uint32_t parameter : {kW, kB}) gradients.push_back(Gradient(parameter));
    }
  }
  ASSERT_EQ(gradients.size(), 8u);
  for (size_t i = 2; i < gradients.size(); ++i) EXPECT_EQ(gradients[i], gradients[i % 2]) << i;
}

TEST_F(GradientAccumulatorDeviceTest, TellsARepetitionFromOtherBytesWhereverTheyLie) {
  const PushingWorker worker = Open(0);
  const std::vector<Piece> other = {{kW, {9, 2, 3, 4, 5, 6}}};
  // The first of each parameter is folded.
  ASSERT_TRUE(PushInMemory(worker, kFirst).ok());
  EXPECT_TRUE(PushInMemory(worker, kFirst).ok());
  EXPECT_TRUE(PushInMemory(worker, {kFirst[0]}).ok());
  EXPECT_TRUE(Push(worker, kW, 0, kFirst[0].values).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PushInMemory(worker, other)));
  const absl::Status status = Push(worker, kW, 0, other[0].values);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_NE(status.message().find("were taken with other bytes, digest "), std::string::npos);
  // Those of the later rank wait, as they would from the host.
  const PushingWorker later = Open(1);
  ASSERT_TRUE(Push(later, kW, 0, kSecond[0].values).ok());
  EXPECT_TRUE(PushInMemory(later, {kSecond[0]}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(PushInMemory(later, other)));
  ASSERT_TRUE(Finish(worker).ok());
}

TEST_F(GradientAccumulatorDeviceTest, AChunkThatChangesOnItsWayToTheHostIsPushedAgain) {
  const PushingWorker worker = Open(1);
  const absl::Status status = PushInMemory(worker, {kSecond[0]}, /*spoil=*/1);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(PushInMemory(worker, kSecond).ok());
  EXPECT_TRUE(Finish(worker).ok());
}

TEST_F(GradientAccumulatorDeviceTest, RefusesWhatDoesNotFitAsFromTheHost) {
  const PushingWorker worker = Open(0);
  const absl::Status status = PushInMemory(worker, {{kB, {1, 2, 3, 4, 5}}});
  EXPECT_EQ(status.message(), "parameter b: offset 0 + 5 elements pushed, it has 4");
}

}  // namespace
}  // namespace kaon::shard
