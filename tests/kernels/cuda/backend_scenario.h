// Runs small steps of a shard on a backend: several threads fold sums of several parameters, then
// come means, updates and copies. Returns every fact and digest, so that two
// backends, streams or seeds can be compared bit by bit. Used by tests only.
#ifndef KAON_TESTS_KERNELS_CUDA_BACKEND_SCENARIO_H_
#define KAON_TESTS_KERNELS_CUDA_BACKEND_SCENARIO_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace kaon::kernels::cuda {

std::vector<uint64_t> RunScenario(Backend& backend);

// Returns a backend over the device on the host, with little memory in its rings.
std::unique_ptr<CudaBackend> NewBackendOnHost(uint64_t seed, int num_streams);

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_BACKEND_SCENARIO_H_
