// The sections of the check program (check.cc). Those of Backend compare and measure the backend
// that a shard loads; those of the device use the parts below it. Each is called once, by main.
#ifndef KAON_TESTS_GPU_SECTIONS_H_
#define KAON_TESTS_GPU_SECTIONS_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "tests/gpu/check_results.h"

namespace kaon::gpu_check {

// 126 matrices: 18 of each shape. peers.py has the same list.
inline constexpr int64_t kSmallShapes[][2] = {{64, 64},   {128, 128},  {256, 256}, {64, 576},
                                              {128, 512}, {256, 1024}, {192, 384}};
inline constexpr int kOfEachSmallShape = 18;

struct Machine {
  kernels::cuda::Device& device;
  // The CUDA backend, and the CPU backend that defines correct results.
  kernels::Backend& cuda;
  kernels::Backend& cpu;
  // Tiny sizes, to see that everything runs: figures mean nothing.
  bool small = false;
  // Rounds of a figure of Measure.
  int repeats = 20;
};

// Describes the card, and what its libraries can do.
void Probe(const Machine& machine, Results& results);
// Compares the instructions of instructions.h with what their host twins give.
void CheckTwins(const Machine& machine, Results& results);
// Compares every operation of the CUDA backend with the CPU backend, bit for bit.
void CheckConformance(const Machine& machine, Results& results);
// Compares matrix products with fp64.
void CheckProducts(const Machine& machine, Results& results);
// Checks that all repeats have one digest, whatever runs concurrently.
void CheckDeterminism(const Machine& machine, Results& results);
// Measures rates and times, and those of a device copy.
void Measure(const Machine& machine, Results& results);
// Measures parts below the backend. Measure calls it.
void MeasureDevice(const Machine& machine, Results& results);

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_SECTIONS_H_
