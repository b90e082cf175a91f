#include "server/checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "server/checkpoint/state_tensors.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class CheckpointReaderTest : public testing::Test {
 protected:
  CheckpointReader Write(const TinyShards& shards) {
    return CheckpointReader(directory_, WriteCheckpoint(directory_, "a", 10, shards).value());
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

// Protocol section 6: restore onto any number of shards is range reads.
TEST_F(CheckpointReaderTest, ReadsAnyRangeWhoeverWroteIt) {
  const std::vector<StateTensor> tensors = StateTensorsOf(TinyRegistration()).value();
  std::mt19937 random(20261121);
  for (const TinyShards& shards : {TinyShards{1}, TinyShards{2, 32, 3}, TinyShards{5, 64, 1}}) {
    simulation::SimulatedDirectory disk("disk", 1);
    CheckpointDirectory directory(disk);
    CheckpointReader reader(directory, WriteCheckpoint(directory, "a", 10, shards).value());
    for (const StateTensor& tensor : tensors) {
      for (int i = 0; i < 20; ++i) {
        uint64_t first = random() % (tensor.num_elements + 1);
        uint64_t end = first + random() % (tensor.num_elements + 1 - first);
        if (tensor.dtype == v1::STATE_DTYPE_INT8) {
          first = first / 32 * 32;
          end = end / 32 * 32;
        }
        const std::string expected =
            TinyBytes(10, tensor.parameter_id, tensor.role, tensor.dtype, first, end - first);
        std::string read(expected.size(), '\0');
        const absl::Status status =
            reader.Read(tensor.parameter_id, tensor.role, first, end - first, absl::MakeSpan(read));
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(read, expected) << tensor.role << " " << first << " to " << end;
      }
    }
  }
}

TEST_F(CheckpointReaderTest, NamesWhatItDoesNotHave) {
  CheckpointReader reader = Write({2, 32, 3});
  std::string to(34, '\0');
  const auto refusal = [&](uint32_t id, absl::string_view role, uint64_t first, uint64_t count) {
    return std::string(reader.Read(id, role, first, count, absl::MakeSpan(to)).message());
  };
  EXPECT_EQ(refusal(0, "exp_avg", 0, 32), "checkpoint a: parameter 'h.w' 'exp_avg' is not in it");
  EXPECT_EQ(refusal(9, "weight", 0, 1), "checkpoint a: parameter_id 9 'weight' is not in it");
  EXPECT_EQ(refusal(0, "momentum_buffer", 64, 33),
            "checkpoint a: parameter 'h.w' 'momentum_buffer': 33 elements from element 64 on, of "
            "96");
  EXPECT_EQ(refusal(0, "weight", UINT64_MAX, 2),
            "checkpoint a: parameter 'h.w' 'weight': 2 elements from element 18446744073709551615 "
            "on, of 96");
  EXPECT_EQ(refusal(0, "momentum_buffer", 31, 32),
            "checkpoint a: parameter 'h.w' 'momentum_buffer': elements 31 to 63 of a tensor in "
            "groups, expecting "
            "multiples of 32");
  EXPECT_EQ(refusal(0, "momentum_buffer", 0, 64),
            "checkpoint a: parameter 'h.w' 'momentum_buffer': 34 bytes for elements 0 to 64, "
            "expecting 68");
  EXPECT_EQ(refusal(0, "momentum_buffer", 64, 32), "");
}

TEST_F(CheckpointReaderTest, ReadsNoByteThatChanged) {
  CheckpointReader reader = Write({1});
  ASSERT_TRUE(disk_.FlipBit(reader.manifest().files(0).name(), 4096 * 8 + 3).ok());
  std::string to(4, '\0');
  EXPECT_EQ(reader.Read(3, "weight", 0, 1, absl::MakeSpan(to)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::checkpoint
