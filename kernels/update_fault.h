// What becomes of an update that must not be applied: the weights stay as they were. A decision is
// final, so that this is the last guard: it depends on the arguments alone, and a replay comes to
// the same. Pure functions over borrowed buffers; any thread, on disjoint buffers.
#ifndef KAON_KERNELS_UPDATE_FAULT_H_
#define KAON_KERNELS_UPDATE_FAULT_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

// Writes the values of param to new_param, and `fault` with their digest and largest magnitude to
// `result`. Only sets the fault where both are the same memory.
void KeepWeights(UpdateFault fault, uint32_t parameter_id, const UpdateBuffers& buffers,
                 UpdateResult& result);

// Returns the largest Frobenius norm of an orthogonalized matrix of that rank, at least 1, that
// correct arithmetic gives with room to spare: 1.5 sqrt(rank), or 1.1 times the largest singular
// value of the set's result where that is more.
double MostOrthogonalNorm(const NewtonSchulzConfig& config, int64_t rank);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_UPDATE_FAULT_H_
