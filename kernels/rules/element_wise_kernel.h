// The bulk loop of any element-wise rule on the CPU, for RunVectorized.
// Pure functions; any thread, on disjoint buffers.
#ifndef KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_
#define KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace kaon::kernels {

// Buffers of `n` elements each. `new_param` may be `param`; nothing else overlaps.
template <typename Rule>
struct ElementWiseArrays {
  const float* grad;
  const float* param;
  float* new_param;
  // As many as the configuration has slots.
  float* state[Rule::kMaxSlots];
  int64_t n;
};

// For configurations with `num_slots` slots. To Element, a slot that is not there holds 0.
template <typename Rule, int num_slots>
struct ElementWiseKernel {
  KAON_HOST_DEVICE static void Run(const typename Rule::Scalars* scalars,
                                   const ElementWiseArrays<Rule>* arrays) {
    // Copies, which no store through the arrays can change: else the compiler reloads them for
    // every element.
    const typename Rule::Scalars s = *scalars;
    const ElementWiseArrays<Rule> a = *arrays;
    // No element depends on another, not even when new_param is param.
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < a.n; ++i) {
      float state[Rule::kMaxSlots] = {};
      for (int k = 0; k < num_slots; ++k) state[k] = a.state[k][i];
      a.new_param[i] = Rule::Element(s, a.grad[i], a.param[i], state);
      for (int k = 0; k < num_slots; ++k) a.state[k][i] = state[k];
    }
  }
};

// Calls run with the kernel for `num_slots`, which is Rule::kMinSlots .. Rule::kMaxSlots.
template <typename Rule, int at = Rule::kMinSlots, typename Callback>
void WithElementWiseKernel(int num_slots, const Callback& run) {
  if constexpr (at < Rule::kMaxSlots) {
    if (num_slots > at) return WithElementWiseKernel<Rule, at + 1>(num_slots, run);
  }
  run(ElementWiseKernel<Rule, at>());
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_
