// The sections of the check program (check.cc). Those of Backend compare and measure the backend
// that a shard loads; those of the device use the parts below it. Each is called once, by main.
#ifndef KAON_TESTS_GPU_SECTIONS_H_
#define KAON_TESTS_GPU_SECTIONS_H_

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "tests/gpu/check_results.h"

namespace kaon::gpu_check {

struct Machine {
  kernels::cuda::Device& device;
  // The CUDA backend, and the CPU backend that defines correct results.
  kernels::Backend& cuda;
  kernels::Backend& cpu;
  // Tiny sizes, to see that everything runs: figures mean nothing.
  bool small = false;
};

// What this card is, and what its libraries can do.
void Probe(const Machine& machine, Results& results);
// The host twins of instructions.h against the instructions.
void CheckTwins(const Machine& machine, Results& results);
// Every operation of the CUDA backend against the CPU backend, bit for bit.
void CheckConformance(const Machine& machine, Results& results);
// Matrix products against fp64.
void CheckProducts(const Machine& machine, Results& results);
// One digest in all repeats, whatever runs concurrently.
void CheckDeterminism(const Machine& machine, Results& results);
// Rates and times beside those of a device copy.
void Measure(const Machine& machine, Results& results);
// Times of parts below the backend; Measure calls it.
void MeasureDevice(const Machine& machine, Results& results);

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_SECTIONS_H_
