#include "server/shard/parameters/parameter_moves.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;

class ParameterMovesTest : public testing::Test {
 protected:
  void SetUp() override { Make(&nvme_); }
  void Make(tier::NvmeTier* nvme) {
    accumulator_ = nullptr;
    parameters_ = nullptr;
    registration_ = MakeRegistration();
    parameters_ = *ParameterStore::Create({store_, nvme}, *backend_, registration_, 0, 1);
    ASSERT_TRUE(parameters_->ReserveWorkspace().ok());
    GradientAccumulatorOptions options;
    options.store = &store_;
    options.backend = backend_.get();
    options.staging_bytes = 2 << 20;
    options.swapped = nvme == nullptr ? nullptr : &nvme->sums();
    accumulator_ = std::make_unique<GradientAccumulator>(options);
    ASSERT_TRUE(accumulator_->Reserve(registration_, 0, parameters_->OnDisk()).ok());
    publisher_.Serve("gpt2", 1, parameters_->sources());
  }
  // Publishes weights of w as version `step`, and sets its momentum.
  void Write(uint64_t step, float value) {
    tier::UnitUpdatePin pinned = *publisher_.BeginWrite(kW);
    const std::vector<float> weights(6, value);
    backend_->CopyIn(kernels::ConstRegion(weights).host_bytes(), pinned.next_weights());
    const std::vector<float> momentum(6, value + 0.5f);
    backend_->CopyIn(kernels::ConstRegion(momentum).host_bytes(), pinned.state(0));
    publisher_.Publish(kW, step, std::move(pinned));
  }
  absl::StatusOr<float> Read(uint64_t step) {
    float value = 0;
    const absl::Status status =
        publisher_.Read(kW, step, 5, kernels::DType::kFloat32, absl::MakeSpan(&value, 1));
    if (!status.ok()) return status;
    return value;
  }
  float Momentum() { return publisher_.PinNewest(kW)->tensor(1).host_floats()[3]; }
  absl::StatusOr<std::unique_ptr<ParameterMoves>> Reserve(v1::Tier tier) {
    v1::JobDefinition job = registration_.definition();
    for (v1::ParameterGroup& group : *job.mutable_groups()) group.set_tier(tier);
    return ParameterMoves::Reserve(job, *parameters_, *accumulator_);
  }
  void MoveTo(v1::Tier tier) {
    auto moves = Reserve(tier);
    ASSERT_TRUE(moves.ok()) << moves.status();
    const absl::Status moved = (*moves)->Apply(publisher_, [](uint32_t, int) {});
    ASSERT_TRUE(moved.ok()) << moved;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::CreateBackend({}).value();
  tier::HostTier host_{1 << 20};
  tier::TieredStore store_{host_};
  simulation::SimulatedDirectory disk_{"/nvme", 1};
  std::unique_ptr<disk::BlockFile> file_ =
      simulation::SimulatedBlockFile::Open(disk_, "state", 1 << 20).value();
  disk::BlockFile* const files_[1] = {file_.get()};
  tier::NvmeTier nvme_{files_, *backend_, 1 << 20};
  ParameterPublisher publisher_{*backend_, nullptr, &store_};
  v1::RegisterBody registration_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientAccumulator> accumulator_;
};

TEST_F(ParameterMovesTest, MovesWeightsStateAndSumsToTheDiskAndBack) {
  const uint64_t in_memory = store_.used_bytes();
  Write(1, 3);
  Write(2, 4);
  for (int round = 0; round < 2; ++round) {
    MoveTo(v1::TIER_NVME);
    EXPECT_EQ(parameters_->Get(kW).place.home, &nvme_);
    EXPECT_EQ(parameters_->Get(kB).place.home, &nvme_);
    // Two versions of w and one tensor of state, of b and two, and two sums; a block each.
    EXPECT_EQ(nvme_.used_bytes(), (4 + 6 + 2) * disk::kBlockBytes);
    EXPECT_LT(store_.used_bytes(), in_memory);
    EXPECT_EQ(*Read(2), 4);
    EXPECT_EQ(Momentum(), 4.5f);
    // A group without a wish stays where it is.
    MoveTo(v1::TIER_AUTO);
    EXPECT_EQ(parameters_->Get(kW).place.home, &nvme_);
    MoveTo(v1::TIER_HOST);
    EXPECT_TRUE(parameters_->Get(kW).is_in_memory());
    EXPECT_EQ(nvme_.used_bytes(), 0u);
    EXPECT_EQ(store_.used_bytes(), in_memory);
    EXPECT_EQ(*Read(2), 4);
    EXPECT_EQ(Momentum(), 4.5f);
  }
  Write(3, 5);
  EXPECT_EQ(*Read(2), 4);
  EXPECT_EQ(*Read(3), 5);
}

// P5: a reader keeps its version.
TEST_F(ParameterMovesTest, AReaderOfTheOlderVersionKeepsIt) {
  Write(1, 3);
  v1::PullRequest request;
  request.set_step(1);
  request.add_parameter_ids(kW);
  const ReaderId reader = publisher_.Pin(request);
  Write(2, 4);
  MoveTo(v1::TIER_NVME);
  EXPECT_EQ(*Read(1), 3);
  EXPECT_EQ(*Read(2), 4);
  publisher_.Unpin(reader, kW);
  EXPECT_FALSE(Read(1).ok());
}

TEST_F(ParameterMovesTest, WhatIsNotAppliedIsFreed) {
  const uint64_t in_memory = store_.used_bytes();
  ASSERT_TRUE(Reserve(v1::TIER_NVME).ok());
  EXPECT_EQ(nvme_.used_bytes(), 0u);
  EXPECT_EQ(store_.used_bytes(), in_memory);
  EXPECT_TRUE(parameters_->Get(kW).is_in_memory());
}

// A disk may leave a parameter alone in its group, whose update may take more memory then.
TEST_F(ParameterMovesTest, WorkspaceForUpdatesBesideADiskIsReleasedWithIt) {
  class LoneBackend final : public kernels::ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    size_t NumConcurrentUpdates(absl::Span<const kernels::SizedUpdate> updates) const override {
      return updates.size();
    }
    uint64_t WorkspaceBytes(absl::Span<const kernels::SizedUpdate> updates) const override {
      return updates.size() == 1 ? 4096 : 1024;
    }
  };
  accumulator_ = nullptr;
  parameters_ = nullptr;
  backend_ = std::make_unique<LoneBackend>(std::move(backend_));
  Make(&nvme_);
  const uint64_t in_memory = store_.used_bytes();
  {
    const auto moves = Reserve(v1::TIER_NVME);
    ASSERT_TRUE(moves.ok()) << moves.status();
    EXPECT_EQ(store_.used_bytes(), in_memory + 3072);
  }
  EXPECT_EQ(store_.used_bytes(), in_memory);
  MoveTo(v1::TIER_NVME);
  MoveTo(v1::TIER_HOST);
  EXPECT_EQ(store_.used_bytes(), in_memory);
}

// There is room for the weights that come back, and not for a second copy of the state.
TEST_F(ParameterMovesTest, StateThatIsInMemoryStaysThere) {
  const uint64_t in_memory = store_.used_bytes();
  const uint64_t state = 3 * tier::HostExtentBytes(1);
  // Weights and sums of w and b.
  const uint64_t others = 6 * tier::HostExtentBytes(1);
  const uint64_t claimed = store_.capacity_bytes() - in_memory + others;
  accumulator_ = nullptr;
  parameters_ = nullptr;
  ASSERT_TRUE(store_.Claim(claimed).ok());
  Make(&nvme_);
  Write(1, 3);
  ASSERT_FALSE(parameters_->Get(kW).is_in_memory());
  ASSERT_TRUE(parameters_->Get(kW).HasInMemory(1));
  const std::byte* const momentum = publisher_.PinNewest(kW)->tensor(1).data();
  EXPECT_FALSE(Reserve(v1::TIER_HOST).ok());
  store_.Release(others);
  ASSERT_LT(store_.capacity_bytes() - store_.used_bytes(), others + state);
  MoveTo(v1::TIER_HOST);
  EXPECT_TRUE(parameters_->Get(kW).is_in_memory());
  EXPECT_EQ(publisher_.PinNewest(kW)->tensor(1).data(), momentum);
  EXPECT_EQ(*Read(1), 3);
  EXPECT_EQ(Momentum(), 3.5f);
  // It moves on like any other, and nothing is left behind.
  MoveTo(v1::TIER_NVME);
  EXPECT_FALSE(parameters_->Get(kW).HasInMemory(1));
  MoveTo(v1::TIER_HOST);
  EXPECT_EQ(Momentum(), 3.5f);
  accumulator_ = nullptr;
  parameters_ = nullptr;
  EXPECT_EQ(store_.used_bytes(), claimed - others);
  EXPECT_EQ(nvme_.used_bytes(), 0u);
}

TEST_F(ParameterMovesTest, RefusesWhatFindsNoRoomAndChangesNothing) {
  MoveTo(v1::TIER_NVME);
  const uint64_t used = nvme_.used_bytes();
  ASSERT_TRUE(store_.Claim(store_.capacity_bytes() - store_.used_bytes() - 64).ok());
  const absl::Status status = Reserve(v1::TIER_HOST).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("raise --host-memory-bytes"), absl::string_view::npos) << status;
  EXPECT_EQ(nvme_.used_bytes(), used);
  EXPECT_EQ(store_.capacity_bytes() - store_.used_bytes(), 64u);
}

TEST_F(ParameterMovesTest, RefusesATierThatTheShardLacks) {
  Make(nullptr);
  const absl::Status status = Reserve(v1::TIER_NVME).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("has no disk for parameters"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kaon::shard
