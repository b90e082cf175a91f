// One row of the numerics table at work: a few updates of one parameter through a backend, compared
// with the same updates in float64. Plain values and functions of them; any thread, as far as the
// backend allows.
#ifndef KAON_TESTS_CONFORMANCE_TRIAL_H_
#define KAON_TESTS_CONFORMANCE_TRIAL_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/float64_rule.h"

namespace kaon::conformance {

// Kind of the gradients. kFlat and kFourDecades have a chosen spectrum and keep their singular
// vectors from step to step, so that the momentum has that spectrum too. kOneSign has equal
// elements: all products of a sum have the same sign, so their rounding errors do not cancel.
enum class Input { kGaussian, kFlat, kFourDecades, kTiny, kHuge, kZeroFirst, kOneSign };

// Three updates with changing learning rate; the second gradient is clipped.
struct Trial {
  kernels::RuleConfig rule;
  std::vector<uint64_t> shape;
  Input input = Input::kGaussian;
  uint32_t seed = 1;
};

// Returns the relative Frobenius error of the change of the weights.
double WeightError(const Trial& trial, Stored stored, kernels::Backend& backend);

// Returns the largest relative Frobenius error of a state slot as it reads back.
double StateError(const Trial& trial, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_TRIAL_H_
