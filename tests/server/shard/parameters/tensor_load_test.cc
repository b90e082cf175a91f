#include "server/shard/parameters/tensor_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::shard {
namespace {

using testing::ElementsAre;

// Parameter w is on a disk, b and f are in memory.
class TensorLoadTest : public testing::Test {
 protected:
  TensorLoadTest() {
    v1::RegisterBody registration = MakeRegistration();
    for (v1::ParameterGroup& group : *registration.mutable_definition()->mutable_groups()) {
      group.set_tier(group.name() == "matrices" ? v1::TIER_NVME : v1::TIER_HOST);
    }
    store_ = ParameterStore::Create({memory_, &nvme_}, *backend_, registration, 0, 1).value();
    publisher_.Serve("gpt2", 1, store_->sources());
    for (const uint32_t id : {0, 1, 2}) Add(id, "weight");
    Add(0, "momentum_buffer");
    Add(1, "exp_avg");
    Add(1, "exp_avg_sq");
    Add(9, "weight");
  }

  void Add(uint32_t id, const std::string& role) {
    tensors_.emplace_back();
    tensors_.back().set_parameter_id(id);
    tensors_.back().set_role(role);
  }
  // Fills each tensor with its parameter's id + 1, and notes the order.
  absl::Status Load() {
    std::vector<const v1::CheckpointTensor*> tensors;
    for (const v1::CheckpointTensor& tensor : tensors_) tensors.push_back(&tensor);
    return LoadTensors(
        tensors, 7, *store_, publisher_,
        [this](uint32_t id, int) { read_.push_back(absl::StrCat("begin ", id)); },
        [this](const v1::CheckpointTensor& tensor, kernels::Region to) {
          read_.push_back(absl::StrCat(tensor.role(), " ", tensor.parameter_id()));
          if (to.empty()) read_.back() += " is none of this shard";
          for (float& value : to.host_floats()) {
            value = static_cast<float>(tensor.parameter_id() + 1);
          }
          return absl::OkStatus();
        });
  }

  const std::unique_ptr<kernels::Backend> backend_ = kernels::CreateBackend({}).value();
  tier::HostTier host_{1 << 16};
  tier::TieredStore memory_{host_};
  simulation::SimulatedDirectory disk_{"disk", 1};
  std::unique_ptr<disk::BlockFile> file_ =
      simulation::SimulatedBlockFile::Open(disk_, "parameters", 1 << 20).value();
  disk::BlockFile* const files_[1] = {file_.get()};
  tier::NvmeTier nvme_{files_, *backend_, 1 << 16};
  ParameterPublisher publisher_{*backend_};
  std::unique_ptr<ParameterStore> store_;
  std::vector<v1::CheckpointTensor> tensors_;
  std::vector<std::string> read_;
};

TEST_F(TensorLoadTest, TensorsOfAParameterOnADiskAreReadTogether) {
  ASSERT_TRUE(Load().ok());
  EXPECT_THAT(read_, ElementsAre("begin 1", "weight 1", "begin 2", "weight 2", "exp_avg 1",
                                 "exp_avg_sq 1", "weight 9 is none of this shard", "begin 0",
                                 "weight 0", "momentum_buffer 0"));
}

TEST_F(TensorLoadTest, WeightsArePublishedAndDigestsAreThoseOfTheTensors) {
  ASSERT_TRUE(Load().ok());
  for (const StoredParameter& parameter : store_->parameters()) {
    EXPECT_EQ(parameter.is_in_memory(), parameter.id != 0);
    const auto pinned = publisher_.PinNewest(parameter.id);
    ASSERT_TRUE(pinned.ok()) << pinned.status();
    EXPECT_TRUE(CheckDigests(*backend_, parameter, pinned->tensor(0), pinned->states()).ok());
    float value = 0;
    ASSERT_TRUE(
        publisher_.Read(parameter.id, 7, 1, kernels::DType::kFloat32, absl::MakeSpan(&value, 1))
            .ok());
    EXPECT_EQ(value, static_cast<float>(parameter.id + 1));
  }
}

TEST_F(TensorLoadTest, AParameterWithoutAllTensorsIsNotPublished) {
  const absl::Status status = LoadTensors(
      {&tensors_[0], &tensors_[3]}, 7, *store_, publisher_, [](uint32_t, int) {},
      [](const v1::CheckpointTensor& tensor, kernels::Region) {
        return tensor.role() == "weight" ? absl::OkStatus() : absl::DataLossError("torn");
      });
  EXPECT_EQ(status.message(), "torn");
  EXPECT_FALSE(publisher_.IsReadable(0, 7));
}

}  // namespace
}  // namespace kaon::shard
