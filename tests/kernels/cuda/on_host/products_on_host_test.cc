// Products of a device, on the host, against a loop.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/products/products.h"
#include "kernels/dtype.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

using Batch = std::vector<std::vector<float>>;

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 9;
constexpr int64_t kInner = 13;
constexpr int64_t kBatch = 3;

BatchedProduct ProductOf(NsDType dtype, bool transpose_b) {
  return {.dtype = dtype,
          .rows = kRows,
          .cols = kCols,
          .inner = kInner,
          .transpose_b = transpose_b,
          .batch = kBatch,
          .a = LayoutOf(dtype, kRows, kInner),
          .b = transpose_b ? LayoutOf(dtype, kCols, kInner) : LayoutOf(dtype, kInner, kCols),
          .d = LayoutOf(dtype, kRows, kCols)};
}

// Operands of one batch of products in device memory, and as they are stored.
struct Operands {
  Operands(TestDevice& device, const BatchedProduct& p)
      : device(device),
        a(device.Memory(p.a.stride * kBatch * 4)),
        b(device.Memory(p.b.stride * kBatch * 4)),
        c(device.Memory(p.d.stride * kBatch * 4)),
        d(device.Memory(p.d.stride * kBatch * 4)) {
    const auto filled = [&](int64_t rows, int64_t cols, uint32_t seed, const OwnedMemory& memory) {
      Batch batch;
      for (int64_t i = 0; i < kBatch; ++i) {
        batch.push_back(reference::GaussianVector(rows * cols, seed + i));
      }
      device.UploadMatrices(p.dtype, rows, cols, batch, memory.data());
      return device.DownloadMatrices(p.dtype, rows, cols, kBatch, memory.data());
    };
    a_values = filled(kRows, kInner, 1, a);
    b_values = p.transpose_b ? filled(kCols, kInner, 10, b) : filled(kInner, kCols, 10, b);
    c_values = filled(kRows, kCols, 20, c);
  }

  void ExpectProducts(const BatchedProduct& p, float alpha, float beta) {
    const Batch result = device.DownloadMatrices(p.dtype, kRows, kCols, kBatch, d.data());
    const double tolerance[] = {1e-6, 4e-3, 5e-4};
    for (int64_t m = 0; m < kBatch; ++m) {
      std::vector<double> expected(kRows * kCols);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < kCols; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < kInner; ++k) {
            const int64_t at = p.transpose_b ? j * kInner + k : k * kCols + j;
            sum += static_cast<double>(a_values[m][i * kInner + k]) * b_values[m][at];
          }
          expected[i * kCols + j] = alpha * sum + beta * c_values[m][i * kCols + j];
        }
      }
      EXPECT_LE(reference::RelativeError(result[m], expected),
                tolerance[static_cast<int>(p.dtype)]);
    }
  }

  TestDevice& device;
  OwnedMemory a, b, c, d;
  Batch a_values, b_values, c_values;
};

TEST(ProductsOnHostTest, BatchesAreMultiplied) {
  TestDevice device;
  for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16}) {
    for (const bool transpose_b : {false, true}) {
      const BatchedProduct product = ProductOf(dtype, transpose_b);
      ASSERT_TRUE(device.products().Find(product).ok());
      Operands x(device, product);
      device.products().Multiply(device.on(), product, 0.5f, -2,
                                 {x.a.data(), x.b.data(), x.c.data(), x.d.data()});
      x.ExpectProducts(product, 0.5f, -2);
      device.products().Multiply(device.on(), product, 1, 0,
                                 {x.a.data(), x.b.data(), nullptr, x.d.data()});
      x.ExpectProducts(product, 1, 0);
    }
  }
}

TEST(ProductsOnHostTest, AddressesMayComeInArrays) {
  TestDevice device;
  BatchedProduct product = ProductOf(NsDType::kBFloat16, true);
  Operands x(device, product);
  // The order is reversed, so that an array that is not read is found.
  std::vector<const void*> addresses;
  for (const auto& [memory, stride] : {std::pair(&x.a, product.a.stride),
                                       {&x.b, product.b.stride},
                                       {&x.c, product.d.stride},
                                       {&x.d, product.d.stride}}) {
    for (int64_t i = kBatch - 1; i >= 0; --i) addresses.push_back(memory->data() + i * stride * 2);
  }
  const OwnedMemory arrays = device.Memory(addresses.size() * sizeof(void*));
  device.Upload(addresses, arrays.data());
  product.by_address = true;
  const auto array = [&](int i) { return arrays.data() + i * kBatch * sizeof(void*); };
  device.products().Multiply(device.on(), product, 2, 3, {array(0), array(1), array(2), array(3)});
  product.by_address = false;
  x.ExpectProducts(product, 2, 3);
}

TEST(ProductsOnHostTest, RowsAndMatricesStartOnTheirBoundaries) {
  for (const NsDType dtype : {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16}) {
    const BatchLayout layout = LayoutOf(dtype, 3, 9);
    EXPECT_EQ(layout.pitch, 16);
    EXPECT_GE(layout.stride, 3 * 16);
    EXPECT_EQ(layout.stride * ElementBytes(dtype) % 256, 0);
  }
}

TEST(ProductsOnHostTest, AlgorithmsAreChosenForATypicalBatch) {
  EXPECT_EQ(TypicalBatch(256, 256), 66);
  EXPECT_EQ(TypicalBatch(1024, 1024), 4);
  EXPECT_EQ(TypicalBatch(4096, 14336), 1);
}

}  // namespace
}  // namespace kaon::kernels::cuda
