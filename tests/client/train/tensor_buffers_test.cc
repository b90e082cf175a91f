#include "client/train/tensor_buffers.h"

#include <gtest/gtest.h>

namespace kaon::train {
namespace {

TEST(TensorBuffersTest, CarriesFloat32Unchanged) {
  const std::vector<std::vector<float>> values = {{1.0f / 3, -0.0f}, {1e-42f}};
  TensorBuffers buffers;
  std::vector<std::vector<float>> decoded;
  Encode(values, &buffers);
  Decode(buffers, &decoded);
  EXPECT_EQ(decoded, values);
  EXPECT_EQ(buffers.num_bytes(), 12u);
}

class TensorBuffersRoundingTest : public testing::TestWithParam<kernels::DType> {};

TEST_P(TensorBuffersRoundingTest, RoundsEachElementOnce) {
  const std::vector<std::vector<float>> values = {{1.0f / 3, 1e5f, -7.123f}, {2.0f}};
  TensorBuffers buffers;
  buffers.dtype = GetParam();
  std::vector<std::vector<float>> decoded;
  Encode(values, &buffers);
  Decode(buffers, &decoded);
  EXPECT_EQ(buffers.num_bytes(), 8u);
  for (size_t id = 0; id < values.size(); ++id) {
    for (size_t i = 0; i < values[id].size(); ++i) {
      EXPECT_EQ(decoded[id][i], kernels::RoundTo(GetParam(), values[id][i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HalfTypes, TensorBuffersRoundingTest,
                         testing::Values(kernels::DType::kBFloat16, kernels::DType::kFloat16));

}  // namespace
}  // namespace kaon::train
