#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/reference_gemm.h"

namespace kaon::kernels {
namespace {

class TensorTest : public ::testing::Test {
 protected:
  CpuBackend backend_{std::make_unique<ReferenceGemm>()};
};

TEST_F(TensorTest, StartsAsZerosAndHoldsWhatIsFilledIn) {
  absl::StatusOr<Tensor> tensor = Tensor::Create(backend_, 3 * sizeof(float));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->Floats(), std::vector<float>(3));
  tensor->Fill({1, 2, 3});
  EXPECT_EQ(tensor->Floats(), (std::vector<float>{1, 2, 3}));
}

TEST_F(TensorTest, MovesItsMemory) {
  Tensor from(backend_, std::vector<float>{4, 5});
  const std::byte* const memory = from.region().data();
  Tensor to = std::move(from);
  EXPECT_EQ(to.region().data(), memory);
  Tensor other(backend_, std::vector<float>{6});
  other = std::move(to);
  EXPECT_EQ(other.Floats(), (std::vector<float>{4, 5}));
}

TEST_F(TensorTest, MayBeEmpty) {
  EXPECT_TRUE(Tensor(backend_, std::vector<float>()).Floats().empty());
  EXPECT_TRUE(Tensor().Floats().empty());
}

}  // namespace
}  // namespace kaon::kernels
