#include "kernels/digest.h"

#include <algorithm>

#include "kernels/float_bits.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

// splitmix64's finalizer: a bijection, so one changed element always changes the sum.
KAON_HOST_DEVICE uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kTensorDomain = 0x4b616f6e54656e73ull;
constexpr uint64_t kFactDomain = 0x4b616f6e46616374ull;

uint64_t KeyOf(uint64_t domain, uint32_t parameter_id, uint32_t slot) {
  return Mix(Mix(domain) ^ (static_cast<uint64_t>(parameter_id) << 32 | slot));
}

// Elements whose indices share their upper half, which is in `key`; the lower half and the value
// fill one word.
struct SumMixed {
  KAON_HOST_DEVICE static uint64_t Run(const float* values, int64_t n, uint64_t key,
                                       uint64_t low_index) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t index = low_index + static_cast<uint64_t>(i);
      sum += Mix(key ^ (index << 32 | BitsOf(values[i])));
    }
    return sum;
  }
};

}  // namespace

uint64_t TensorDigest(uint32_t parameter_id, uint32_t slot, absl::Span<const float> values,
                      uint64_t first_index) {
  const uint64_t tensor_key = KeyOf(kTensorDomain, parameter_id, slot);
  uint64_t sum = 0;
  uint64_t index = first_index;
  while (!values.empty()) {
    const uint64_t low = index & 0xffffffffull;
    const uint64_t n = std::min<uint64_t>(values.size(), (1ull << 32) - low);
    const uint64_t key = Mix(tensor_key ^ (index >> 32));
    sum += RunVectorized<SumMixed>(values.data(), static_cast<int64_t>(n), key, low);
    values.remove_prefix(n);
    index += n;
  }
  return sum;
}

uint64_t FactDigest(uint32_t parameter_id, uint32_t slot, uint64_t value) {
  return Mix(KeyOf(kFactDomain, parameter_id, slot) ^ value);
}

}  // namespace kaon::kernels
