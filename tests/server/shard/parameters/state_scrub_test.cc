// T18: bits that flip in memory are found within one pass, and end the process.
#include "server/shard/parameters/state_scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 5;
const std::vector<std::vector<float>> kGradients = {{1, -1, 2, -2, 3, -3}, {1, 2, 3, 4}};

class StateScrubTest : public testing::Test {
 protected:
  StateScrubTest() {
    shard_.Load();
    for (uint64_t step = 1; step <= 2; ++step) shard_.Train(step, kGradients);
  }

  struct Tensor {
    std::string parameter;
    kernels::Region region;
  };

  // Everything that a pass reads.
  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors;
    for (const StoredParameter& parameter : shard_.core().parameters()->parameters()) {
      tensors.push_back({parameter.name, WeightsOf(parameter)});
      for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
        tensors.push_back({parameter.name, SlotOf(parameter, i)});
      }
    }
    return tensors;
  }

  void Flip(const Tensor& tensor, size_t bit) {
    const kernels::Region byte = tensor.region.Sub(bit / 8, 1);
    const std::byte old = shard_.memory().Bytes(byte)[0];
    shard_.memory().Write(byte, {old ^ static_cast<std::byte>(1 << bit % 8)});
  }

  // Of one whole pass.
  absl::Status Pass(StateScrub& scrub) {
    absl::Status status;
    for (uint64_t step = 0; step < kSteps; ++step) {
      status.Update(scrub.Check(*shard_.core().parameters(), shard_.core().publisher()));
    }
    return status;
  }

  DrivenShard shard_;
};

TEST_F(StateScrubTest, FindsEveryFlippedBitWithinOnePass) {
  std::mt19937 random(1);
  StateScrub scrub(kSteps);
  int found = 0;
  // w and b with their moments, and f, which is frozen.
  ASSERT_EQ(Tensors().size(), 2u + 3u + 1u);
  for (const Tensor& tensor : Tensors()) {
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(Pass(scrub), absl::OkStatus());
      const size_t bit = random() % (tensor.region.size() * 8);
      Flip(tensor, bit);
      const absl::Status status = Pass(scrub);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr("parameter " + tensor.parameter + ":"));
      found += status.ok() ? 0 : 1;
      Flip(tensor, bit);
    }
  }
  std::cout << "bits flipped in memory: 600, found " << found << ", naming the very parameter "
            << found << std::endl;
}

TEST_F(StateScrubTest, ReadsNoMoreThanItsShare) {
  // Four steps in five read no frozen parameter: it is one of three.
  Flip(Tensors().back(), 0);
  StateScrub scrub(kSteps);
  int found = 0;
  for (int step = 0; step < 20; ++step) {
    found += scrub.Check(*shard_.core().parameters(), shard_.core().publisher()).ok() ? 0 : 1;
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 20);
}

// The recovery path is the crash path: after a restart the shard replays its disk.
TEST_F(StateScrubTest, ADamagedShardEndsInsteadOfVotingOn) {
  Flip(Tensors().back(), 0);
  const auto train_on = [this] {
    for (uint64_t step = 3; step <= 70; ++step) shard_.Train(step, kGradients);
  };
  EXPECT_DEATH(train_on(), "position [0-9]+: DATA_LOSS: parameter f: its weights in memory");
}

}  // namespace
}  // namespace kaon::shard
