#include "kernels/reduce/stable_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace kaon::kernels {
namespace {

// Returns U diag(s) V^T for orthogonal U and V, so that s are the singular values. U and V are
// reflections in random directions.
std::vector<float> MatrixOf(const std::vector<double>& s, int64_t rows, int64_t cols) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const auto direction = [&](int64_t n) {
    std::vector<double> d(n);
    double squares = 0;
    for (double& value : d) squares += std::pow(value = normal(random), 2);
    for (double& value : d) value /= std::sqrt(squares);
    return d;
  };
  const std::vector<double> u = direction(rows);
  const std::vector<double> v = direction(cols);
  std::vector<float> matrix(rows * cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (size_t k = 0; k < s.size(); ++k) {
        const auto at = static_cast<int64_t>(k);
        const double left = (i == at ? 1 : 0) - 2 * u[i] * u[k];
        const double right = (j == at ? 1 : 0) - 2 * v[j] * v[k];
        sum += left * s[k] * right;
      }
      matrix[i * cols + j] = static_cast<float>(sum);
    }
  }
  return matrix;
}

// The float64 reference is the list of singular values itself.
TEST(StableRankTest, IsThatOfTheSingularValues) {
  for (const std::vector<double>& s :
       std::vector<std::vector<double>>{{3},
                                        {2, 0.5, 0.25},
                                        {1, 1, 1, 1},
                                        {5, 4, 0.1, 0.1, 0.1},
                                        {1, 0.9, 0.8, 0.7, 0.6, 0.5}}) {
    double squares = 0;
    for (const double value : s) squares += value * value;
    const double exact = squares / (s[0] * s[0]);
    for (const bool tall : {false, true}) {
      const int64_t rows = tall ? 24 : 9;
      const int64_t cols = tall ? 9 : 24;
      const std::optional<double> rank = StableRank(MatrixOf(s, rows, cols), rows, cols);
      ASSERT_TRUE(rank.has_value());
      EXPECT_GE(*rank, exact * (1 - 1e-5));
      EXPECT_LE(*rank, exact * 1.10) << s.size();
    }
  }
}

TEST(StableRankTest, DoesNotDependOnTheScale) {
  std::vector<float> matrix = MatrixOf({4, 2, 1}, 6, 8);
  const std::optional<double> rank = StableRank(matrix, 6, 8);
  for (float& value : matrix) value *= 0x1p-60F;
  EXPECT_DOUBLE_EQ(*StableRank(matrix, 6, 8), *rank);
}

TEST(StableRankTest, IsAbsentWithoutASize) {
  EXPECT_FALSE(StableRank({}, 0, 5).has_value());
  EXPECT_FALSE(StableRank(std::vector<float>(6), 2, 3).has_value());
  std::vector<float> matrix(6, 1);
  matrix[4] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(StableRank(matrix, 2, 3).has_value());
}

}  // namespace
}  // namespace kaon::kernels
