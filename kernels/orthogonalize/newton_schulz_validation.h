// Validates Newton-Schulz configurations (numerics.md, rules [N2], [N3], [N5] and [N7]). This is
// done once, when a rule is registered, so that the iteration itself needs no checks. Pure
// function; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_

#include "absl/status/status.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

// Checks a configuration. INVALID_ARGUMENT names field, value and range, in the words of
// kaon.v1.MuonOptions. Coefficients must pass two tests in the requested storage type. The composed
// polynomial over all steps must be above 0 on (0, 1]; otherwise an update could go uphill (edge
// case 50). It must not run away.
// So `aol` is refused in any type, `cubic5` in bf16, `cans` in bf16 and fp16.
absl::Status ValidateNewtonSchulz(const NewtonSchulzConfig& config);

// Returns an upper bound on the singular values of the result; rounding within its products is not
// counted. `config` passed ValidateNewtonSchulz.
double MostSingularValue(const NewtonSchulzConfig& config);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_
