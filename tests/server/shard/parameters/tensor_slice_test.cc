#include "server/shard/parameters/tensor_slice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/state_codec.h"
#include "proto/crc32c.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;

v1::ShardSliceRequest Asking(const std::string& tensor, uint64_t offset, uint32_t count) {
  v1::ShardSliceRequest request;
  request.set_parameter_id(kW);
  request.set_tensor(tensor);
  request.set_offset(offset);
  request.set_count(count);
  return request;
}

std::vector<float> ValuesOf(const v1::TensorSlice& slice) {
  EXPECT_EQ(slice.crc32c(), proto::Crc32c(slice.values().data(), slice.values().size()));
  std::vector<float> values(slice.values().size() / sizeof(float));
  std::memcpy(values.data(), slice.values().data(), slice.values().size());
  return values;
}

TEST(TensorSliceTest, HasTheNewestCommittedWeights) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
  const auto slice = shard.core().Slice(Asking("weight", 2, 3));
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_EQ(slice->step(), 1u);
  EXPECT_EQ(std::vector<uint64_t>(slice->shape().begin(), slice->shape().end()),
            (std::vector<uint64_t>{2, 3}));
  const std::vector<float> weights = shard.Read(kW, 1);
  EXPECT_EQ(ValuesOf(*slice), std::vector<float>(weights.begin() + 2, weights.begin() + 5));
  // A slice ends with the tensor.
  EXPECT_EQ(ValuesOf(*shard.core().Slice(Asking("weight", 5, 100))),
            std::vector<float>({weights[5]}));
  EXPECT_EQ(shard.core().Slice(Asking("momentum_buffer", 0, 6))->values().size(), 24u);
}

TEST(TensorSliceTest, HasNothingBeforeWeightsAreLoaded) {
  DrivenShard shard;
  shard.Promise(1);
  shard.Plan(RegistrationPlan(1, 1));
  shard.Decide(Applying(RegistrationPlan(1, 1)));
  EXPECT_EQ(shard.core().Slice(Asking("weight", 0, 1)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(TensorSliceTest, RefusesWhatThereIsNotAndNamesWhatThereIs) {
  DrivenShard shard;
  shard.Load();
  const auto refusal = [&shard](const v1::ShardSliceRequest& request) {
    return shard.core().Slice(request).status().ToString();
  };
  EXPECT_EQ(refusal(Asking("exp_avg", 0, 1)),
            "NOT_FOUND: tensor \"exp_avg\" asked for, the parameter has weight, momentum_buffer");
  EXPECT_EQ(refusal(Asking("weight", 6, 1)), "OUT_OF_RANGE: offset is 6, must be below 6");
  EXPECT_EQ(refusal(Asking("weight", 0, 0)), "INVALID_ARGUMENT: count is 0, must be 1 .. 262144");
  EXPECT_EQ(refusal(Asking("weight", 0, kMaxSliceElements + 1)),
            "INVALID_ARGUMENT: count is 262145, must be 1 .. 262144");
  v1::ShardSliceRequest other = Asking("weight", 0, 1);
  other.set_job("bert");
  EXPECT_EQ(shard.core().Slice(other).status().code(), absl::StatusCode::kNotFound);
}

// Whole groups are decoded, whatever part of them is asked for.
TEST(TensorSliceTest, DecodesCompactState) {
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend({});
  StoredParameter parameter;
  parameter.num_elements = 70;
  parameter.shape = {70};
  kernels::StateSlot slot;
  slot.name = "momentum_buffer";
  slot.dtype = kernels::StateDType::kInt8;
  slot.num_elements = 70;
  slot.num_bytes = kernels::StateBytes(slot.dtype, 70);
  parameter.state_slots.push_back(slot);
  std::vector<float> momentum(70);
  for (size_t i = 0; i < momentum.size(); ++i)
    momentum[i] = i % 32 == 0 ? 127.F : static_cast<float>(i);
  std::vector<float> state(slot.num_bytes / sizeof(float) + 1);
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(state.data()), slot.num_bytes);
  kernels::EncodeState(slot.dtype, momentum, 0, bytes);
  const std::vector<kernels::Region> states = {kernels::Region(bytes)};
  const auto slice = SliceOf(parameter, *backend, {}, states, Asking("momentum_buffer", 30, 39));
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_EQ(ValuesOf(*slice), std::vector<float>(momentum.begin() + 30, momentum.begin() + 69));
}

}  // namespace
}  // namespace kaon::shard
