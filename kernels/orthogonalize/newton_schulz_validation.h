// Which Newton-Schulz configurations there may be ([N2], [N3], [N5], [N7]): checked once, when a
// rule is registered, so that the iteration itself needs no checks. Pure function; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_

#include "absl/status/status.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

// INVALID_ARGUMENT naming field, value and range, in the words of kaon.v1.MuonOptions. Coefficients
// are refused where, in the storage type asked for, their composed polynomial over all steps is not
// above 0 on (0, 1], so that an update could go uphill (edge case 50), or runs away: `aol` in any,
// `cubic5` in bf16, `cans` in bf16 and fp16.
absl::Status ValidateNewtonSchulz(const NewtonSchulzConfig& config);

// Returns an upper bound on the singular values of the result; rounding within its products is not
// counted. `config` passed ValidateNewtonSchulz.
double MostSingularValue(const NewtonSchulzConfig& config);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_VALIDATION_H_
