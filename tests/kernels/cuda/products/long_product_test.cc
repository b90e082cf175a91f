// fp32 products with a long inner dimension, on the host, against float64.
#include "kernels/cuda/products/long_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

using Batch = std::vector<std::vector<float>>;

BatchedProduct ProductOf(int64_t rows, int64_t cols, int64_t inner, bool transpose_b,
                         int64_t batch = 1, NsDType dtype = NsDType::kFloat32) {
  return {.dtype = dtype,
          .rows = rows,
          .cols = cols,
          .inner = inner,
          .transpose_b = transpose_b,
          .batch = batch,
          .a = LayoutOf(dtype, rows, inner),
          .b = transpose_b ? LayoutOf(dtype, cols, inner) : LayoutOf(dtype, inner, cols),
          .d = LayoutOf(dtype, rows, cols)};
}

// Row-major operands of each matrix of a batch.
struct Operands {
  Batch a, b, c;
};

Operands GaussianOperands(const BatchedProduct& p) {
  Operands x;
  for (int64_t i = 0; i < p.batch; ++i) {
    const auto seed = static_cast<uint32_t>(3 * i);
    x.a.push_back(reference::GaussianVector(p.rows * p.inner, seed + 1));
    x.b.push_back(reference::GaussianVector(p.cols * p.inner, seed + 2));
    x.c.push_back(reference::GaussianVector(p.rows * p.cols, seed + 3));
  }
  return x;
}

class LongProductTest : public ::testing::Test {
 protected:
  // Returns D of each matrix, by pieces or by one call of the library.
  Batch Product(const BatchedProduct& p, const Operands& x, float alpha, float beta,
                bool in_pieces = true) {
    const auto bytes = [&](const BatchLayout& layout) {
      return p.batch * layout.stride * ElementBytes(p.dtype);
    };
    const OwnedMemory a = device_.Memory(bytes(p.a));
    const OwnedMemory b = device_.Memory(bytes(p.b));
    const OwnedMemory c = device_.Memory(bytes(p.d));
    const OwnedMemory d = device_.Memory(bytes(p.d));
    device_.UploadMatrices(p.dtype, p.rows, p.inner, x.a, a.data());
    device_.UploadMatrices(p.dtype, p.transpose_b ? p.cols : p.inner,
                           p.transpose_b ? p.inner : p.cols, x.b, b.data());
    device_.UploadMatrices(p.dtype, p.rows, p.cols, x.c, c.data());
    const ProductOperands operands = {a.data(), b.data(), c.data(), d.data()};
    if (in_pieces) {
      EXPECT_TRUE(FindInPieces(device_.products(), p).ok());
      MultiplyInPieces(device_.products(), device_.on(), p, alpha, beta, operands);
    } else {
      EXPECT_TRUE(device_.products().Find(p).ok());
      device_.products().Multiply(device_.on(), p, alpha, beta, operands);
    }
    return device_.DownloadMatrices(p.dtype, p.rows, p.cols, p.batch, d.data());
  }

  // Relative error of a product of constant matrices.
  double ErrorOfOneSign(const BatchedProduct& p, bool in_pieces) {
    const float value = 0.3f;
    const auto constant = [&](int64_t elements) { return Batch(1, std::vector(elements, value)); };
    const Operands x = {constant(p.rows * p.inner), constant(p.cols * p.inner),
                        constant(p.rows * p.cols)};
    const double exact = static_cast<double>(value) * value * static_cast<double>(p.inner);
    return reference::RelativeError(Product(p, x, 1, 0, in_pieces)[0],
                                    std::vector<double>(p.rows * p.cols, exact));
  }

  TestDevice device_;
};

TEST_F(LongProductTest, SumsOfOneSignStayNearFloat64) {
  for (const int64_t inner : {9000, 30000, 250000}) {
    const BatchedProduct product = ProductOf(2, 2, inner, true);
    EXPECT_LE(ErrorOfOneSign(product, true), 2e-6) << inner;
    EXPECT_GE(ErrorOfOneSign(product, false), 2e-5) << inner;
  }
}

// The pieces' results of this size do not fit into the scratch. All elements of D are equal, and
// no two pieces are.
TEST_F(LongProductTest, LargeResultsAreSummedInPlace) {
  const BatchedProduct p = ProductOf(256, 256, 16500, true);
  Operands x = {Batch(1, std::vector<float>(p.rows * p.inner)),
                Batch(1, std::vector<float>(p.cols * p.inner)),
                Batch(1, std::vector<float>(p.rows * p.cols, 100.0f))};
  double sum = 0;
  for (int64_t k = 0; k < p.inner; ++k) {
    const auto piece = static_cast<float>(k / kLongestPieceOfLarge);
    const float a = 0.3f + 0.01f * piece;
    const float b = 0.7f - 0.002f * piece;
    for (int64_t i = 0; i < p.rows; ++i) x.a[0][i * p.inner + k] = a;
    for (int64_t j = 0; j < p.cols; ++j) x.b[0][j * p.inner + k] = b;
    sum += static_cast<double>(a) * b;
  }
  EXPECT_LE(reference::RelativeError(Product(p, x, 0.5f, -2)[0],
                                     std::vector<double>(p.rows * p.cols, 0.5 * sum - 200)),
            3e-6);
}

TEST_F(LongProductTest, PiecesOfEachMatrixAreAdded) {
  for (const int64_t inner : {128, 129, 256, 300}) {
    for (const bool transpose_b : {false, true}) {
      const BatchedProduct p = ProductOf(5, 9, inner, transpose_b, 3);
      const Operands x = GaussianOperands(p);
      const Batch added = Product(p, x, 0.5f, -2);
      const Batch alone = Product(p, x, 1, 0);
      for (int64_t m = 0; m < p.batch; ++m) {
        std::vector<double> with_c(p.rows * p.cols);
        std::vector<double> without_c(p.rows * p.cols);
        for (int64_t i = 0; i < p.rows; ++i) {
          for (int64_t j = 0; j < p.cols; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < inner; ++k) {
              const int64_t at = transpose_b ? j * inner + k : k * p.cols + j;
              sum += static_cast<double>(x.a[m][i * inner + k]) * x.b[m][at];
            }
            without_c[i * p.cols + j] = sum;
            with_c[i * p.cols + j] = 0.5 * sum - 2.0 * x.c[m][i * p.cols + j];
          }
        }
        EXPECT_LE(reference::RelativeError(added[m], with_c), 1e-6) << inner;
        EXPECT_LE(reference::RelativeError(alone[m], without_c), 1e-6) << inner;
      }
    }
  }
}

TEST_F(LongProductTest, BitsDoNotDependOnTheBatch) {
  const BatchedProduct product = ProductOf(7, 7, 1000, true, 3);
  const Operands x = GaussianOperands(product);
  const Batch together = Product(product, x, 1, 1);
  for (int64_t i = 0; i < product.batch; ++i) {
    const Operands one = {{x.a[i]}, {x.b[i]}, {x.c[i]}};
    EXPECT_EQ(Product(ProductOf(7, 7, 1000, true), one, 1, 1)[0], together[i]);
  }
}

TEST_F(LongProductTest, ShortAndHalfPrecisionProductsAreLeftWhole) {
  for (const BatchedProduct& product :
       {ProductOf(3, 3, 128, true), ProductOf(3, 3, 3000, true, 1, NsDType::kBFloat16)}) {
    const Operands x = GaussianOperands(product);
    EXPECT_EQ(Product(product, x, 1, 1), Product(product, x, 1, 1, false));
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
