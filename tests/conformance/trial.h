// One row of the numerics table at work: a few updates of one parameter through a backend, beside
// the same in float64. Plain values and functions of them; any thread, as far as the backend
// allows.
#ifndef KAON_TESTS_CONFORMANCE_TRIAL_H_
#define KAON_TESTS_CONFORMANCE_TRIAL_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/float64_rule.h"

namespace kaon::conformance {

// What the gradients are. The two with a chosen spectrum keep their singular vectors from step to
// step, so that the momentum has that spectrum too. kOneSign has equal elements: every product of
// a sum has the same sign, so that its rounding errors do not cancel.
enum class Input { kGaussian, kFlat, kFourDecades, kTiny, kHuge, kZeroFirst, kOneSign };

// Three updates with changing learning rate; the second gradient is clipped.
struct Trial {
  kernels::RuleConfig rule;
  std::vector<uint64_t> shape;
  Input input = Input::kGaussian;
  uint32_t seed = 1;
};

// Relative Frobenius error of what the updates changed in the weights.
double WeightError(const Trial& trial, Stored stored, kernels::Backend& backend);

// The largest relative Frobenius error of a state slot as it reads back.
double StateError(const Trial& trial, kernels::Backend& backend);

}  // namespace kaon::conformance

#endif  // KAON_TESTS_CONFORMANCE_TRIAL_H_
