#include "server/shard/snapshot/frozen_part_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/shard/driven_shard.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};

class FrozenPartWriterTest : public testing::Test {
 protected:
  FrozenPartWriterTest() {
    shard_.Load();
    freeze_ = *shard_.core().Freeze();
    v1::CheckpointFile written_by;
    written_by.set_build("test");
    writer_ = *FrozenPartWriter::Create(directory_, *freeze_, "c", std::nullopt, written_by);
  }

  simulation::SimulatedDirectory disk_{"/d", 1};
  checkpoint::CheckpointDirectory directory_{disk_};
  DrivenShard shard_;
  std::unique_ptr<StateFreeze> freeze_;
  std::unique_ptr<FrozenPartWriter> writer_;
};

// Steps go on between the pieces.
TEST_F(FrozenPartWriterTest, WritesTheStateOfItsPosition) {
  const std::vector<float> weights = shard_.Read(0, 0);
  uint64_t step = 0;
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more) {
    more = writer_->WriteSome();
    shard_.Train(++step, kGradients);
  }
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(step, 6u);
  EXPECT_EQ(writer_->written_bytes(), freeze_->num_bytes());
  const absl::StatusOr<v1::CheckpointPart> part = writer_->Finish();
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->position(), 2u);
  EXPECT_EQ(part->files(0).build(), "test");
  ASSERT_EQ(part->tensors_size(), 6);
  for (const v1::CheckpointTensor& tensor : part->tensors()) {
    if (tensor.parameter_id() != 0 || tensor.role() != "weight") continue;
    const auto file = directory_.Open(part->files(0));
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<float> read(6);
    ASSERT_TRUE((*file)->Read(tensor.offset(), 24, reinterpret_cast<char*>(read.data())).ok());
    EXPECT_EQ(read, weights);
  }
}

TEST_F(FrozenPartWriterTest, IsNotFinishedBeforeTheLastPiece) {
  ASSERT_TRUE(writer_->WriteSome().ok());
  EXPECT_EQ(writer_->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FrozenPartWriterTest, SaysThatTheDiskIsFull) {
  disk_.SetFreeBytes(10);
  EXPECT_EQ(writer_->WriteSome().status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kaon::shard
