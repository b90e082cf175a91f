// The bulk loop of any element-wise rule on the CPU, for RunVectorized.
// Pure functions; any thread, on disjoint buffers.
#ifndef KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_
#define KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_

#include <cstddef>
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
  // Gradients, as they are stored, and weights that are read next, to be fetched meanwhile; null:
  // none.
  const std::byte* next_grad = nullptr;
  // Of one gradient.
  size_t grad_bytes = 0;
  const float* next_param = nullptr;
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
    int64_t i = 0;
    if (a.next_param != nullptr) {
      for (; i + kFetched <= a.n; i += kFetched) {
        FetchNext(a, i);
        RunRange(s, a, i, i + kFetched);
      }
    }
    RunRange(s, a, i, a.n);
  }

 private:
  // Elements whose successors are fetched at once.
  static constexpr int64_t kFetched = 64;

  // Evenly: the divisions of a rule take so long that memory would stand idle, and all at once
  // would keep them waiting.
  KAON_HOST_DEVICE static void FetchNext(const ElementWiseArrays<Rule>& a, int64_t i) {
    constexpr int64_t kLineBytes = 64;
    const auto grad_bytes = static_cast<int64_t>(a.grad_bytes);
    const std::byte* const grad = a.next_grad + i * grad_bytes;
    for (int64_t at = 0; at < kFetched * grad_bytes; at += kLineBytes) {
      __builtin_prefetch(grad + at);
    }
    constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(float));
    for (int64_t at = 0; at < kFetched; at += kLine) __builtin_prefetch(a.next_param + i + at);
  }

  KAON_HOST_DEVICE static void RunRange(const typename Rule::Scalars& s,
                                        const ElementWiseArrays<Rule>& a, int64_t begin,
                                        int64_t end) {
    // No element depends on another, not even when new_param is param.
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = begin; i < end; ++i) {
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
