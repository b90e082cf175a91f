// Newton-Schulz in float64, written again from docs/design/numerics.md 1.1. It has every
// coefficient set as doubles, the standard and the Gram form, and every normalisation. Its
// emulators round to bfloat16 or float16 wherever a matrix is stored ([N9]). Shares no code with
// kernels/. Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_

#include <array>
#include <eigen3/Eigen/Core>
#include <string>
#include <vector>

namespace kaon::reference {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Triples = std::vector<std::array<double, 3>>;

// Returns the triples of `steps` iterations of the set of that name ([N2], [N3]). Knows `aol`, too,
// which Kaon does not offer.
Triples TriplesOfSet(const std::string& name, int steps);

// Returns the factor on the norm of the set's input.
double SafetyFactorOfSet(const std::string& name);

// Returns the number of triples in the set's list.
int SizeOfSet(const std::string& name);

// Returns the number nearest to `x` with `bits` significant bits, ties to even. The result is a
// multiple of 2^floor, and infinite from 2^ceiling up.
double RoundToBits(double x, int bits, int floor, int ceiling);
double RoundToBFloat16(double x);
double RoundToFloat16(double x);

struct NewtonSchulzCase {
  Triples triples = {};
  double safety_factor = 1;
  // If not 0, the input is x / (safety_factor
  // x
  // + add_eps).
  double add_eps = 0;
  // If not 0, the input is x / max(safety_factor
  // x
  // , clamp_eps).
  double clamp_eps = 0;
  // Rounds every matrix that is stored; null = exact.
  double (*store)(double) = nullptr;
  bool gram = false;
  std::vector<int> gram_restarts = {};
};

// Returns the orthogonalized matrix by [N1], [N5], [N6] and [N7]; zero for a zero matrix.
Matrix Orthogonalized(const NewtonSchulzCase& c, const Matrix& g);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_
