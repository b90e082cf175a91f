// Newton-Schulz in float64 from the text of numerics.md ([N1]-[N8]), with coefficient tables of its
// own: what the numerics table compares with. Reads the kernels' configuration structs, runs none
// of their code. Pure functions; any thread.
#ifndef KAON_TESTS_CONFORMANCE_FLOAT64_ORTHOGONALIZE_H_
#define KAON_TESTS_CONFORMANCE_FLOAT64_ORTHOGONALIZE_H_

#include "kernels/newton_schulz_config.h"
#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::conformance {

using reference::Matrix;
using reference::Triples;

// What a stored iterate becomes.
enum class Stored { kExact, kAsConfigured };

// The triples of every step: the set's, by its own count or repetition ([N2], [N3]).
Triples TriplesOf(const kernels::NewtonSchulzConfig& config);

// Steps of a set where the configuration leaves them open: all its triples, at least 5.
int NaturalSteps(kernels::NsCoefficients set);

// The number nearest to `x` with so many significant bits, ties to even, and no finer than 2^floor;
// infinite from 2^ceiling up.
double RoundToBits(double x, int bits, int floor, int ceiling);
double RoundToFloat16(double x);

// With kAsConfigured, X, A and B (in the Gram form X, R, Z, Q and RZ) are rounded to the
// configuration's dtype whenever they are stored ([N6], [N9]).
Matrix Orthogonalize(const kernels::NewtonSchulzConfig& config, Stored stored, const Matrix& g);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_FLOAT64_ORTHOGONALIZE_H_
