// Handles an update that must not be applied: the weights keep their values. A decision is final,
// so this is the last guard. It depends on the arguments alone, so a replay gives the same result.
// Pure functions over borrowed buffers; any thread, on disjoint buffers
// of host memory.
#ifndef KAON_KERNELS_UPDATE_FAULT_H_
#define KAON_KERNELS_UPDATE_FAULT_H_

#include <cstdint>

#include "kernels/newton_schulz_config.h"
#include "kernels/update.h"

namespace kaon::kernels {

// Writes the values of param to new_param, and `fault` with their digest and largest magnitude to
// `result`. If both are the same memory, it only sets the fault.
void KeepWeights(UpdateFault fault, uint32_t parameter_id, const UpdateBuffers& buffers,
                 UpdateResult& result);

// Returns the largest Frobenius norm that correct arithmetic gives for an orthogonalized matrix of
// this rank (>= 1), with a margin. It is 1.5 sqrt(rank), or 1.1 times the largest singular value of
// the set's result if that is more.
double MostOrthogonalNorm(const NewtonSchulzConfig& config, int64_t rank);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_UPDATE_FAULT_H_
