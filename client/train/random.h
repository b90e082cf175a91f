// Counter-based random numbers: a pure function of (seed, stream, index), the same on every
// machine. So a run can be resumed or divided without generator state. Any thread.
#ifndef KAON_CLIENT_TRAIN_RANDOM_H_
#define KAON_CLIENT_TRAIN_RANDOM_H_

#include <cstdint>

namespace kaon::train {

// Finalizer of SplitMix64: a bijection with good avalanche.
inline uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  return MixBits(MixBits(MixBits(seed) ^ stream) ^ index);
}

// Returns a number in [0, 1), a multiple of 2^-53.
inline double UnitUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(RandomBits(seed, stream, index) >> 11) * 0x1p-53;
}

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_RANDOM_H_
