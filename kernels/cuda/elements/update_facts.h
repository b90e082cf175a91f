// Facts about written weights and state, as kernels add them up in device memory. Plain values; the
// caller zeroes them on the stream before the first kernel. Any thread.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_UPDATE_FACTS_H_
#define KAON_KERNELS_CUDA_ELEMENTS_UPDATE_FACTS_H_

#include <cstdint>

namespace kaon::kernels::cuda {

// Fields as in UpdateResult. Integer sums and maxima, so the order of additions does not matter.
struct UpdateFacts {
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  uint32_t largest_weight_bits = 0;
  uint32_t unused = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_UPDATE_FACTS_H_
