#include "server/shard/snapshot/checkpoint_restore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "server/checkpoint/import.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/device/shard_memory.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace {

// Largest allocation by any thread of the test, which has one.
size_t largest_allocation = 0;

}  // namespace

void* operator new(size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kaon::shard {
namespace {

// Of tiny_checkpoint.h: int8, bf16 and fp32 state in runs of 32 elements that three shards wrote.
class CheckpointRestoreTest : public testing::Test {
 protected:
  CheckpointRestoreTest() {
    checkpoint::CheckpointDirectory directory(files_);
    manifest_ = checkpoint::WriteCheckpoint(directory, "a", 10, {3, 32, 2}).value();
    *restore_.mutable_registration() = manifest_.registration();
    v1::Placement& placement = *restore_.mutable_registration()->mutable_placement();
    placement.set_num_shards(2);
    for (int id = 0; id < placement.parameters_size(); ++id) {
      placement.mutable_parameters(id)->set_shard(id % 2);
    }
    restore_.set_checkpoint("a");
    restore_.set_manifest_sha256(directory.ManifestDigest("a").value());
    restore_.set_step(manifest_.step());
    *restore_.mutable_last_decision() = manifest_.last_record().decision();
  }

  absl::Status StatusOf(const v1::RestoreBody& restore) {
    return CheckpointRestore::Open(files_, restore).status();
  }

  simulation::SimulatedDirectory files_{"checkpoints", 1};
  v1::CheckpointManifest manifest_;
  v1::RestoreBody restore_;
};

TEST_F(CheckpointRestoreTest, LoadsWhatIsPlacedOnTheShardWhoeverWroteIt) {
  const auto state = CheckpointRestore::Open(files_, restore_).value();
  for (uint32_t shard : {0, 1}) {
    ASSERT_TRUE(state->Check(shard).ok());
    ShardMemory memory(1 << 20);
    const auto store = ParameterStore::Create({memory.store()}, memory.backend(),
                                              restore_.registration(), shard, 2)
                           .value();
    ParameterPublisher publisher(memory.backend());
    publisher.Serve("tiny", 2, store->sources());
    size_t told = 0;
    ASSERT_TRUE(state->Load(*store, publisher, [&told](uint32_t, int) { ++told; }).ok());
    EXPECT_EQ(told, store->parameters().size());
    for (const StoredParameter& parameter : store->parameters()) {
      const std::vector<std::byte> weights = memory.Bytes(WeightsOf(parameter));
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(weights.data()), weights.size()),
                checkpoint::TinyBytes(10, parameter.id, "weight", v1::STATE_DTYPE_FLOAT32, 0,
                                      weights.size() / 4));
      for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
        const kernels::StateSlot& slot = parameter.state_slots[i];
        const std::vector<std::byte> bytes = memory.Bytes(SlotOf(parameter, i));
        const auto dtype = static_cast<v1::StateDType>(static_cast<int>(slot.dtype) + 1);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                  checkpoint::TinyBytes(10, parameter.id, slot.name, dtype, 0, slot.num_elements))
            << slot.name;
      }
      EXPECT_EQ(parameter.updates_applied, 8u);
    }
  }
}

TEST_F(CheckpointRestoreTest, ChecksItsOwnFilesOnly) {
  // Flips every file in turn; of some files a shard needs one tensor only, such as h.b for shard 1.
  checkpoint::CheckpointDirectory directory(files_);
  for (const v1::CheckpointFile& file : manifest_.files()) {
    const auto state = CheckpointRestore::Open(files_, restore_).value();
    ASSERT_TRUE(files_.FlipBit(file.name(), 8 * file.size() - 1).ok());
    bool found = false;
    for (uint32_t shard : {0, 1}) {
      const absl::Status status = state->Check(shard);
      if (status.ok()) continue;
      found = true;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_NE(status.message().find(file.name()), absl::string_view::npos) << status;
    }
    EXPECT_TRUE(found) << file.name();
    ASSERT_TRUE(files_.FlipBit(file.name(), 8 * file.size() - 1).ok());
  }
}

// A parameter of 16 MiB and its int8 momentum, neither of which is a multiple of a piece.
TEST(CheckpointRestoreMemoryTest, ChecksLargeTensorsInSmallPieces) {
  v1::JobDefinition job;
  job.set_name("large");
  job.set_world_size(1);
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name("muon");
  group.set_rule(v1::RULE_MUON);
  group.set_lr(0.01);
  group.set_momentum_dtype(v1::STATE_DTYPE_INT8);
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name("w");
  parameter.add_shape(2047);
  parameter.add_shape(2049);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  parameter.set_group("muon");
  const std::string weights(uint64_t{4} * 2047 * 2049, '\0');
  simulation::SimulatedDirectory disk("checkpoints", 1);
  checkpoint::Tensor tensor;
  tensor.name = "w";
  tensor.shape = {2047, 2049};
  const auto writer =
      checkpoint::SafetensorsWriter::Create(disk.Create("w").value(), {}, {tensor}).value();
  ASSERT_TRUE(writer->Append(weights).ok());
  ASSERT_TRUE(writer->Finish().ok());
  checkpoint::CheckpointDirectory directory(disk);
  const v1::CheckpointManifest manifest =
      checkpoint::ImportWeights(*disk.Open("w").value(), job, "a", directory).value();
  v1::RestoreBody restore;
  *restore.mutable_registration() = manifest.registration();
  restore.set_checkpoint("a");
  restore.set_manifest_sha256(directory.ManifestDigest("a").value());
  *restore.mutable_last_decision() = manifest.last_record().decision();
  const auto state = CheckpointRestore::Open(disk, restore).value();
  largest_allocation = 0;
  EXPECT_EQ(state->Check(0), absl::OkStatus());
  EXPECT_LT(largest_allocation, uint64_t{2} << 20);
  // To the last byte.
  const v1::CheckpointFile& file = manifest.files(0);
  ASSERT_TRUE(disk.FlipBit(file.name(), 8 * file.size() - 1).ok());
  EXPECT_EQ(CheckpointRestore::Open(disk, restore).value()->Check(0).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointRestoreTest, IsOfTheManifestThatWasNamed) {
  EXPECT_TRUE(StatusOf(restore_).ok());
  v1::RestoreBody other = restore_;
  other.mutable_manifest_sha256()->back() ^= 1;
  EXPECT_EQ(StatusOf(other).code(), absl::StatusCode::kDataLoss);
  other = restore_;
  other.set_checkpoint("b");
  EXPECT_EQ(StatusOf(other).code(), absl::StatusCode::kNotFound);
  other = restore_;
  other.mutable_last_decision()->set_next_loss_scale(3);
  EXPECT_EQ(StatusOf(other).message(),
            "the restore of checkpoint a has another last decision than its manifest");
  other = restore_;
  other.mutable_registration()->mutable_definition()->mutable_groups(0)->set_lr(3);
  EXPECT_EQ(StatusOf(other).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::shard
