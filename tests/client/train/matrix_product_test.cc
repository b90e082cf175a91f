#include "client/train/matrix_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "client/train/random.h"

namespace kaon::train {
namespace {

std::vector<double> RandomValues(int n, uint64_t stream) {
  std::vector<double> values(n);
  for (int i = 0; i < n; ++i) values[i] = UnitUniform(5, stream, i) - 0.5;
  return values;
}

// One triple loop for all layouts.
std::vector<double> Reference(const ProductShape& s, const std::vector<double>& a,
                              const std::vector<double>& b, std::vector<double> c) {
  for (int i = 0; i < s.rows; ++i) {
    for (int j = 0; j < s.cols; ++j) {
      double sum = s.accumulate ? c[i * s.cols + j] : 0;
      for (int k = 0; k < s.inner; ++k) {
        sum += a[s.transpose_a ? k * s.rows + i : i * s.inner + k] *
               b[s.transpose_b ? j * s.inner + k : k * s.cols + j];
      }
      c[i * s.cols + j] = sum;
    }
  }
  return c;
}

class MultiplyMatricesTest : public testing::TestWithParam<ProductShape> {};

TEST_P(MultiplyMatricesTest, EqualsTripleLoop) {
  const ProductShape shape = GetParam();
  const std::vector<double> a = RandomValues(shape.rows * shape.inner, 1);
  const std::vector<double> b = RandomValues(shape.inner * shape.cols, 2);
  std::vector<double> c = RandomValues(shape.rows * shape.cols, 3);
  const std::vector<double> expected = Reference(shape, a, b, c);
  MultiplyMatrices<double>(shape, a.data(), b.data(), c.data());
  for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(c[i], expected[i], 1e-12) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MultiplyMatricesTest,
    testing::Values(ProductShape{.rows = 33, .cols = 17, .inner = 29},
                    ProductShape{.rows = 33, .cols = 17, .inner = 29, .transpose_a = true},
                    ProductShape{.rows = 33, .cols = 17, .inner = 29, .transpose_b = true},
                    ProductShape{.rows = 33, .cols = 17, .inner = 29, .accumulate = true},
                    ProductShape{.rows = 1, .cols = 1, .inner = 1}));

}  // namespace
}  // namespace kaon::train
