#include "kernels/reduce/stable_rank.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace kaon::kernels {
namespace {

double SquaresOf(absl::Span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// A sign for each column that follows no pattern of the columns (splitmix64).
double SignOf(uint64_t column) {
  uint64_t bits = (column + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return (bits ^ (bits >> 31)) >> 63 != 0 ? 1.0 : -1.0;
}

// next <- W^T (W v). Returns ||W v||^2.
double Multiply(absl::Span<const float> values, int64_t cols, absl::Span<const double> v,
                std::vector<double>& next) {
  std::fill(next.begin(), next.end(), 0.0);
  double squares = 0;
  for (size_t at = 0; at < values.size(); at += cols) {
    const float* row = values.data() + at;
    double product = 0;
    for (int64_t i = 0; i < cols; ++i) product += static_cast<double>(row[i]) * v[i];
    squares += product * product;
    for (int64_t i = 0; i < cols; ++i) next[i] += product * row[i];
  }
  return squares;
}

}  // namespace

std::optional<double> StableRank(absl::Span<const float> values, int64_t rows, int64_t cols) {
  CHECK_EQ(rows * cols, static_cast<int64_t>(values.size()));
  if (values.empty()) return std::nullopt;
  std::vector<double> v(cols);
  for (int64_t i = 0; i < cols; ++i) v[i] = SignOf(i);
  std::vector<double> next(cols);
  double spectral_squares = 0;
  for (int iteration = 0; iteration < kPowerIterations; ++iteration) {
    const double size = SquaresOf(v);
    if (!(size > 0) || !std::isfinite(size)) return std::nullopt;
    for (double& value : v) value /= std::sqrt(size);
    spectral_squares = std::max(spectral_squares, Multiply(values, cols, v, next));
    v.swap(next);
  }
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  if (!(spectral_squares > 0) || !std::isfinite(squares)) return std::nullopt;
  return std::max(1.0, squares / spectral_squares);
}

}  // namespace kaon::kernels
