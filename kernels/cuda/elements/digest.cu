#include "kernels/cuda/elements/digest.h"
#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/launch.h"
#include "kernels/reduce/digest_key.h"

namespace kaon::kernels::cuda {
namespace {

struct DigestArguments {
  const std::byte* bytes;
  int64_t num_bytes;
  uint64_t key;
  uint64_t* digest;
  bool vector;
  // True if `bytes` is aligned for words of 32 bits.
  bool words;
};

// Returns a word of up to 4 bytes, whose missing bytes are zeros.
KAON_DEVICE uint32_t PaddedWord(const std::byte* bytes, int64_t count) {
  uint32_t word = 0;
  for (int64_t i = 0; i < count; ++i) word |= static_cast<uint32_t>(bytes[i]) << (8 * i);
  return word;
}

struct DigestShared {
  DigestTable table;
  OfWarps<uint64_t> sum;
};

__global__ void __launch_bounds__(kThreads) DigestKernel(const DigestArguments arguments) {
  DigestShared& shared = SharedMemory<DigestShared>();
  FillDigestTable(shared.table);
  __syncthreads();
  DigestSum digest(shared.table, arguments.key);
  const auto* const words = reinterpret_cast<const uint32_t*>(arguments.bytes);
  const int64_t whole = arguments.num_bytes / 4;
  const int64_t num_words = (arguments.num_bytes + 3) / 4;
  for (int64_t turn = int64_t{blockIdx.x} * kTurn; turn < num_words;
       turn += int64_t{gridDim.x} * kTurn) {
    const int64_t first = turn + 4 * threadIdx.x;
    const int count = NumOfFour(first, num_words);
    const int num_whole = arguments.words ? NumOfFour(first, whole) : 0;
    Four<uint32_t> x = LoadFour(words + first, num_whole, arguments.vector);
    for (int i = 0; i < 4; ++i) {
      if (i < num_whole || i >= count) continue;
      const int64_t at = 4 * (first + i);
      const int64_t left = arguments.num_bytes - at;
      x.of[i] = PaddedWord(arguments.bytes + at, left < 4 ? left : 4);
    }
    digest.AddWithinBlock(x.of, count, first);
  }
  AddOfBlock(digest.sum(), shared.sum, arguments.digest);
}

struct MagnitudeArguments {
  const float* values;
  int64_t num_elements;
  uint32_t* bits;
  bool vector;
};

__global__ void __launch_bounds__(kThreads) MagnitudeKernel(const MagnitudeArguments arguments) {
  uint32_t largest = 0;
  for (int64_t turn = int64_t{blockIdx.x} * kTurn; turn < arguments.num_elements;
       turn += int64_t{gridDim.x} * kTurn) {
    const int64_t first = turn + 4 * threadIdx.x;
    const int count = NumOfFour(first, arguments.num_elements);
    const Four<float> x = LoadFour(arguments.values + first, count, arguments.vector);
    for (const float value : x.of) {
      const uint32_t magnitude = BitsOf(value) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  RaiseByBlock(largest, SharedMemory<OfWarps<uint32_t>>(), arguments.bits);
}

}  // namespace

void AddDigest(Stream& stream, uint32_t parameter_id, uint32_t slot, const std::byte* bytes,
               uint64_t num_bytes, uint64_t* digest) {
  const DigestArguments arguments = {bytes, static_cast<int64_t>(num_bytes),
                                     TensorDigestKey(parameter_id, slot), digest,
                                     IsVectorAligned(bytes),
                                     reinterpret_cast<uintptr_t>(bytes) % 4 == 0};
  const int64_t num_words = (arguments.num_bytes + 3) / 4;
  Launch(stream, {BlocksFor(num_words), kThreads}, DigestKernel, arguments);
}

void MaxMagnitude(Stream& stream, const float* values, int64_t num_elements, uint32_t* bits) {
  const MagnitudeArguments arguments = {values, num_elements, bits, IsVectorAligned(values)};
  Launch(stream, {BlocksFor(num_elements), kThreads}, MagnitudeKernel, arguments);
}

}  // namespace kaon::kernels::cuda
