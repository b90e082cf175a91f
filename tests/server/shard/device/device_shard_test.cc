// A shard whose tensors are in memory of a device does what one on the host does, bit for bit.
// Tests named _on_device run whole suites there; these compare the two.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/tier/device_tier.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

std::unique_ptr<DrivenShard> Make(bool on_device) {
  return std::make_unique<DrivenShard>(1 << 16, "", 0, on_device);
}

std::vector<std::byte> Pull(DrivenShard& shard, uint32_t parameter_id, uint64_t step,
                            kernels::DType dtype) {
  const uint64_t n = shard.core().publisher().num_elements(parameter_id);
  std::vector<std::byte> bytes(n * kernels::SizeOf(dtype));
  const absl::Status status =
      shard.core().publisher().Read(parameter_id, step, 0, dtype, absl::MakeSpan(bytes));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

// Steps with and without a gradient of b.
void Train(DrivenShard& shard) {
  shard.Load();
  shard.Train(1, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
  shard.Train(2, {{3, 1, -2, 0.125, 5, -7}, {}});
  shard.Train(3, {{-1, 1e-3f, 2, 0, 1, 8}, {0, 0, 1, 1e20f}});
}

TEST(DeviceShardTest, EndsInTheBitsOfAHostShard) {
  const auto host = Make(false);
  const auto device = Make(true);
  Train(*host);
  Train(*device);
  const v1::DescribeShardResponse expected = *host->core().Describe("");
  EXPECT_EQ(device->core().Describe("")->state_digest(), expected.state_digest());
  EXPECT_EQ(device->core().Describe("")->weights_digest(), expected.weights_digest());
  for (const auto dtype :
       {kernels::DType::kFloat32, kernels::DType::kBFloat16, kernels::DType::kFloat16}) {
    for (uint32_t id : {0, 1, 2}) {
      EXPECT_EQ(Pull(*device, id, 3, dtype), Pull(*host, id, 3, dtype)) << id;
    }
  }
  // Both journal the same gradients.
  const auto slices = host->journal().All<journal::GradientSlice>();
  const auto on_device = device->journal().All<journal::GradientSlice>();
  ASSERT_EQ(on_device.size(), slices.size());
  ASSERT_GT(slices.size(), 6u);
  for (size_t i = 0; i < slices.size(); ++i) EXPECT_EQ(on_device[i].values, slices[i].values) << i;
}

TEST(DeviceShardTest, SaysWhereItsTensorsAreAndHowItMultiplies) {
  const auto device = Make(true);
  const v1::DescribeShardResponse description = *device->core().Describe("");
  EXPECT_EQ(description.memory_tier(), "fake:0");
  ASSERT_EQ(description.product_forms_size(), 1);
  const v1::ProductForm& form = description.product_forms(0);
  EXPECT_EQ(form.dtype(), "bfloat16");
  EXPECT_EQ(form.n(), 64u);
  EXPECT_EQ(form.k(), 96u);
  EXPECT_EQ(form.batch(), 2u);
  EXPECT_EQ(form.form(), "dense");
  EXPECT_EQ(Make(false)->core().Describe("")->memory_tier(), "cpu");
  EXPECT_EQ(Make(false)->core().Describe("")->product_forms_size(), 0);
}

TEST(DeviceShardTest, GoesOnFromTheJournalOfAHostShard) {
  const auto host = Make(false);
  Train(*host);
  const auto device = Make(true);
  for (const journal::Entry& entry : host->journal().entries()) {
    ASSERT_TRUE(device->core().Replay(entry).ok());
  }
  device->core().FinishReplay();
  EXPECT_EQ(device->core().Describe("")->state_digest(), host->core().Describe("")->state_digest());
}

// Without memory for a copy, the step waits until the state is read.
TEST(DeviceShardTest, AStepWaitsForTheReaderOfAFullDevice) {
  const auto shard = Make(true);
  Train(*shard);
  const std::vector<float> expected = shard->Read(0, 3);
  const std::unique_ptr<StateFreeze> freeze = *shard->core().Freeze();
  // The buffer that step 4 writes is not the frozen one, so only step 5 needs a copy of weights.
  shard->memory().device()->SetFull(true);
  std::thread steps([&shard] {
    shard->Train(4, {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1}});
    shard->Train(5, {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1}});
  });
  while (!freeze->is_waited_for()) std::this_thread::yield();
  for (const v1::CheckpointTensor& tensor : freeze->tensors()) {
    std::vector<char> bytes(tensor.num_elements() * sizeof(float));
    ASSERT_TRUE(freeze->Read(tensor.parameter_id(), tensor.role(), 0, absl::MakeSpan(bytes)).ok());
    if (tensor.parameter_id() == 0 && tensor.role() == "weight") {
      EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0);
    }
  }
  steps.join();
  EXPECT_EQ(shard->state().applied_step(), 5u);
}

class DeviceGradientsTest : public testing::Test {
 protected:
  absl::Status Reserve(tier::StateTier* staging) {
    GradientAccumulator::Options options;
    options.store = &store_;
    options.backend = &backend_;
    options.staging_bytes = 4 << 20;
    options.staging = staging;
    accumulator_ = std::make_unique<GradientAccumulator>(options);
    return accumulator_->Reserve(MakeRegistration(), 0);
  }

  FakeDeviceBackend backend_{*kernels::CreateBackend(ShardMemory::Reference())};
  tier::DeviceTier device_{backend_, 1 << 16};
  tier::TieredStore store_{device_};
  std::unique_ptr<GradientAccumulator> accumulator_;
};

TEST_F(DeviceGradientsTest, HaveStagingWhereTheyAreJournaled) {
  tier::HostTier host(1 << 10);
  ASSERT_TRUE(Reserve(&host).ok());
  // Three parameters have 6, 4 and 5 elements.
  EXPECT_EQ(backend_.staging_bytes(), (6u + 4 + 5) * sizeof(float));
  EXPECT_EQ(host.used_bytes(), (6u + 4 + 5) * sizeof(float));
  accumulator_.reset();
  EXPECT_EQ(backend_.staging_bytes(), 0u);
  EXPECT_EQ(host.used_bytes(), 0u);
}

TEST_F(DeviceGradientsTest, HaveNoStagingWhereNobodyJournals) {
  ASSERT_TRUE(Reserve(nullptr).ok());
  EXPECT_EQ(backend_.staging_bytes(), 0u);
}

TEST_F(DeviceGradientsTest, NameTheHostMemoryThatTheirStagingLacks) {
  tier::HostTier host(32);
  const absl::Status status = Reserve(&host);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "parameter b: host memory: 16 bytes needed, 8 free = 32 capacity - 24 in use: raise "
            "--host-memory-bytes or add shards");
  EXPECT_EQ(host.used_bytes(), 0u);
  EXPECT_EQ(store_.used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::shard
