#include "tests/kernels/reference/random_matrices.h"

#include <algorithm>
#include <cmath>
#include <eigen3/Eigen/QR>
#include <random>

namespace kaon::reference {
namespace {

// Orthonormal columns.
Eigen::MatrixXd RandomOrthonormal(int rows, int cols, uint32_t seed) {
  const Matrix gaussian = AsMatrix(GaussianVector(rows * cols, seed), rows, cols);
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr{Eigen::MatrixXd(gaussian)};
  return qr.householderQ() * Eigen::MatrixXd::Identity(rows, cols);
}

}  // namespace

std::vector<float> GaussianVector(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

std::vector<float> MatrixWithSpectrum(int rows, int cols, double decades, uint32_t seed) {
  const int r = std::min(rows, cols);
  Eigen::VectorXd values(r);
  for (int i = 0; i < r; ++i) values[i] = std::pow(10.0, r == 1 ? 0 : -decades * i / (r - 1));
  const Eigen::MatrixXd product = RandomOrthonormal(rows, r, seed) * values.asDiagonal() *
                                  RandomOrthonormal(cols, r, seed + 1).transpose();
  std::vector<float> x;
  x.reserve(rows * cols);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) x.push_back(static_cast<float>(product(i, j)));
  }
  return x;
}

std::vector<double> Widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

Matrix AsMatrix(const std::vector<float>& x, int rows, int cols) {
  Matrix matrix(rows, cols);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) matrix(i, j) = x[i * cols + j];
  }
  return matrix;
}

double RelativeError(const std::vector<float>& x, const std::vector<double>& expected) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (x[i] - expected[i]) * (x[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(size == 0 ? difference : difference / size);
}

double RelativeError(const std::vector<float>& x, const Matrix& expected) {
  return RelativeError(x, std::vector<double>(expected.data(), expected.data() + expected.size()));
}

}  // namespace kaon::reference
