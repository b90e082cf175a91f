// Seeded inputs of the numeric tests: Gaussian matrices and matrices with a chosen spectrum.
// Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_RANDOM_MATRICES_H_
#define KAON_TESTS_KERNELS_REFERENCE_RANDOM_MATRICES_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/reference/float64_newton_schulz.h"

namespace kaon::reference {

// Returns standard normal entries, rounded to fp32.
std::vector<float> GaussianVector(size_t n, uint32_t seed);

// Returns a matrix of `rows` x `cols` with random singular vectors, rounded to fp32. Its singular
// values are 10^0 .. 10^-decades, evenly in the logarithm; decades = 0 is a flat spectrum.
std::vector<float> MatrixWithSpectrum(int rows, int cols, double decades, uint32_t seed);

std::vector<double> Widened(const std::vector<float>& x);
Matrix AsMatrix(const std::vector<float>& x, int rows, int cols);

// Returns
// x - expected
// _F /
// expected
// _F, or the absolute norm of x if `expected` is zero.
double RelativeError(const std::vector<float>& x, const Matrix& expected);
double RelativeError(const std::vector<float>& x, const std::vector<double>& expected);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_RANDOM_MATRICES_H_
