// Newton-Schulz in float64, written again from docs/design/numerics.md 1.1: every coefficient set
// as doubles, the standard and the Gram form, every normalisation, and emulators that round to
// bfloat16 or float16 wherever a matrix is stored ([N9]). Shares no code with kernels/. Pure
// functions; any thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_

#include <array>
#include <eigen3/Eigen/Core>
#include <string>
#include <vector>

namespace kaon::reference {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Triples = std::vector<std::array<double, 3>>;

// The triples of `steps` iterations of the set of that name ([N2], [N3]); also `aol`, which Kaon
// does not offer.
Triples TriplesOfSet(const std::string& name, int steps);

// Factor on the norm of the set's input.
double SafetyFactorOfSet(const std::string& name);

// How many triples the set lists.
int SizeOfSet(const std::string& name);

// The number nearest to `x` with so many significant bits, ties to even, and no finer than 2^floor;
// infinite from 2^ceiling up.
double RoundToBits(double x, int bits, int floor, int ceiling);
double RoundToBFloat16(double x);
double RoundToFloat16(double x);

struct NewtonSchulzCase {
  Triples triples = {};
  double safety_factor = 1;
  // Where not 0, x / (safety_factor ||x|| + add_eps).
  double add_eps = 0;
  // Where not 0, x / max(safety_factor ||x||, clamp_eps).
  double clamp_eps = 0;
  // Applied to every matrix that is stored; none = exact.
  double (*store)(double) = nullptr;
  bool gram = false;
  std::vector<int> gram_restarts = {};
};

// [N1], [N5], [N6], [N7]; zero for zero.
Matrix Orthogonalized(const NewtonSchulzCase& c, const Matrix& g);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_NEWTON_SCHULZ_H_
