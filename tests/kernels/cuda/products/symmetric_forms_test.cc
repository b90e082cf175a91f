// The forms of symmetric products on the host, against a loop.
#include "kernels/cuda/products/symmetric_forms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/dtype.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

using Batch = std::vector<std::vector<float>>;

Batch RandomBatch(int64_t batch, int64_t rows, int64_t cols, uint32_t seed) {
  Batch matrices;
  for (int64_t i = 0; i < batch; ++i) {
    matrices.push_back(reference::GaussianVector(rows * cols, seed + i));
    for (float& x : matrices.back()) x = RoundTo(DType::kBFloat16, x);
  }
  return matrices;
}

void MakeSymmetric(std::vector<float>& x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) x[i * n + j] = x[j * n + i];
  }
}

// alpha a a^T + beta c in float64.
std::vector<double> Expected(int64_t n, int64_t k, const std::vector<float>& a,
                             const std::vector<float>& c, double alpha, double beta) {
  std::vector<double> d(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += static_cast<double>(a[i * k + l]) * a[j * k + l];
      d[i * n + j] = alpha * sum + beta * c[i * n + j];
    }
  }
  return d;
}

void ExpectForm(SymmetricForm form, const SymmetricBatch& shape) {
  TestDevice device;
  SymmetricProducts symmetric(device.device(), device.products());
  const Batch a = RandomBatch(shape.batch, shape.n, shape.k, 1);
  Batch c = RandomBatch(shape.batch, shape.n, shape.n, 50);
  for (std::vector<float>& matrix : c) MakeSymmetric(matrix, shape.n);
  const auto room = [&](int64_t cols) {
    return device.Memory(LayoutOf(shape.dtype, shape.n, cols).stride * shape.batch * 2);
  };
  const OwnedMemory a_memory = room(shape.k);
  const OwnedMemory c_memory = room(shape.n);
  const OwnedMemory d_memory = room(shape.n);
  device.UploadMatrices(shape.dtype, shape.n, shape.k, a, a_memory.data());
  device.UploadMatrices(shape.dtype, shape.n, shape.n, c, c_memory.data());
  ASSERT_TRUE(symmetric.Find(form, shape).ok());
  for (const float beta : {-0.5f, 0.0f}) {
    symmetric.Multiply(
        device.on(), form, shape, 2, beta,
        {a_memory.data(), a_memory.data(), beta == 0 ? nullptr : c_memory.data(), d_memory.data()});
    const Batch d =
        device.DownloadMatrices(shape.dtype, shape.n, shape.n, shape.batch, d_memory.data());
    for (int64_t i = 0; i < shape.batch; ++i) {
      EXPECT_LE(reference::RelativeError(d[i], Expected(shape.n, shape.k, a[i], c[i], 2, beta)),
                4e-3)
          << NameOf(form) << " " << i;
      std::vector<float> mirrored = d[i];
      MakeSymmetric(mirrored, shape.n);
      EXPECT_EQ(d[i], mirrored) << NameOf(form) << " " << i;
    }
  }
}

TEST(SymmetricFormsTest, EveryFormMultiplies) {
  for (const SymmetricForm form : kSymmetricForms) {
    ExpectForm(form, {NsDType::kBFloat16, 300, 40, 2});
    ExpectForm(form, {NsDType::kBFloat16, 256, 33, 1});
  }
}

TEST(SymmetricFormsTest, NamesAreDistinct) {
  EXPECT_EQ(NameOf(SymmetricForm::kDense), "dense");
  EXPECT_EQ(NameOf(SymmetricForm::kBlocks), "blocks");
  EXPECT_EQ(NameOf(SymmetricForm::kWgmma), "wgmma");
}

TEST(SymmetricFormsTest, FloatsAndSmallMatricesAreDense) {
  TestDevice device;
  SymmetricProducts symmetric(device.device(), device.products());
  const SymmetricBatch floats = {NsDType::kFloat32, 512, 512, 1};
  const SymmetricBatch small = {NsDType::kBFloat16, 255, 255, 1};
  EXPECT_TRUE(symmetric.Supports(SymmetricForm::kDense, floats));
  EXPECT_FALSE(symmetric.Supports(SymmetricForm::kWgmma, floats));
  EXPECT_FALSE(symmetric.Supports(SymmetricForm::kBlocks, floats));
  EXPECT_FALSE(symmetric.Supports(SymmetricForm::kBlocks, small));
  EXPECT_EQ(symmetric.Find(SymmetricForm::kBlocks, small).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace kaon::kernels::cuda
