#include "client/kaon/tensor.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon {
namespace {

TEST(TensorViewTest, BytesFollowTheDType) {
  EXPECT_EQ((TensorView{nullptr, 3, DType::kFloat32}.num_bytes()), 12);
  EXPECT_EQ((TensorView{nullptr, 3, DType::kBFloat16}.num_bytes()), 6);
  EXPECT_EQ((MutableTensorView{nullptr, 3, DType::kFloat16}.num_bytes()), 6);
}

TEST(TensorViewTest, BytesOfALargeTensorDoNotOverflow) {
  const uint64_t elements = uint64_t{1} << 40;
  EXPECT_EQ((TensorView{nullptr, elements, DType::kFloat32}.num_bytes()), uint64_t{1} << 42);
}

TEST(DTypeTest, HasTheNamesOfTheCommandLine) {
  EXPECT_EQ(NameOf(DType::kFloat32), std::string("float32"));
  EXPECT_EQ(NameOf(DType::kBFloat16), std::string("bfloat16"));
  EXPECT_EQ(NameOf(DType::kFloat16), std::string("float16"));
}

}  // namespace
}  // namespace kaon
