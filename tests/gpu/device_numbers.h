// Numbers for the sections of the check program: the same on every machine. Pure functions; any
// thread.
#ifndef KAON_TESTS_GPU_DEVICE_NUMBERS_H_
#define KAON_TESTS_GPU_DEVICE_NUMBERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kaon::gpu_check {

// Returns numbers in [-scale, scale), most of them different.
inline std::vector<float> Numbers(int64_t n, uint64_t seed, float scale = 1) {
  std::vector<float> numbers(n);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    number = scale * static_cast<float>(static_cast<int32_t>(state >> 32)) / 2147483648.0f;
  }
  return numbers;
}

// Returns the seed-independent mix of two digests, in order.
inline uint64_t Mixed(uint64_t digest, uint64_t next) {
  return (digest ^ next) * 0x9e3779b97f4a7c15u + (digest >> 29);
}

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_DEVICE_NUMBERS_H_
