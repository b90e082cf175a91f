// The bulk loop of any element-wise rule on the CPU, for each instruction set. One pass widens
// gradients, updates, and digests the written data, so that memory never waits for a separate pass.
// Pure functions; any thread, on disjoint buffers.
#ifndef KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_
#define KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_

#include <glog/logging.h>

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/expand.h"
#include "kernels/host_device.h"
#include "kernels/reduce/digest_products.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {

// Memory of the next step, to prefetch meanwhile: `line_bytes` for every kLine elements. kLine fp32
// elements fill a cache line.
struct NextBytes {
  static constexpr int64_t kLine = 16;

  const std::byte* from = nullptr;
  int64_t line_bytes = 0;
};

// Buffers of `n` elements each, at most kDigestBlock, of one block of the digest (digest.h).
// `new_param` may be `param`; nothing else overlaps.
template <typename Rule>
struct ElementWiseArrays {
  // Gradients as stored; the update uses their fp32 values.
  const std::byte* grad;
  DType grad_dtype;
  const float* param;
  float* new_param;
  // True if new_param is written past the caches (streaming_store.h). Its address must then be a
  // multiple of 64.
  bool streams = false;
  // Slots of the configuration; unused ones are not read.
  float* state[Rule::kMaxSlots];
  int64_t n;
  // Next gradients, weights and slots, each of `n` elements.
  bool has_next = false;
  NextBytes next[2 + Rule::kMaxSlots];
};

// The loop for configurations with `num_slots` slots. Element reads 0 for a missing slot.
template <typename Rule, int num_slots, typename Products>
struct ElementWiseKernel {
  // sums <- SumOfProducts of the written data: new_param, and each slot. Returns the bits of the
  // largest magnitude in new_param.
  KAON_HOST_DEVICE static uint32_t Run(const typename Rule::Scalars* scalars,
                                       const ElementWiseArrays<Rule>* arrays, uint64_t* sums) {
    // Copies, which no store through the arrays can change; otherwise the compiler reloads them for
    // every element.
    const typename Rule::Scalars s = *scalars;
    const ElementWiseArrays<Rule> a = *arrays;
    static_assert(kFetched % Products::kStep == 0, "what is fetched for is digested whole");
    Products products[1 + num_slots];
    typename Products::Largest largest;
    float widened[kFetched];
    int64_t i = 0;
    for (; i + kFetched <= a.n; i += kFetched) {
      if (a.has_next) FetchNext(a, i);
      const float* const grad = Widened(a, i, kFetched, widened);
      for (int64_t j = 0; j < kFetched; j += Products::kStep) {
        const int64_t at = i + j;
        alignas(kLineBytes) float written[Products::kStep];
        float* const new_param = a.streams ? written : a.new_param + at;
        StepElements(s, a, grad + j, at, Products::kStep, new_param);
        products[0].Add(new_param, at);
        largest.Add(new_param);
        for (int k = 0; k < num_slots; ++k) products[1 + k].Add(a.state[k] + at, at);
        if (a.streams) Products::Stream(written, a.new_param + at);
      }
    }
    const int64_t rest = a.n - i;
    StepElements(s, a, Widened(a, i, rest, widened), i, rest, a.new_param + i);
    sums[0] = products[0].Sum() + SumOfProducts(a.new_param + i, rest, i);
    for (int k = 0; k < num_slots; ++k) {
      sums[1 + k] = products[1 + k].Sum() + SumOfProducts(a.state[k] + i, rest, i);
    }
    uint32_t bits = largest.Bits();
    for (; i < a.n; ++i) bits = LargerMagnitude(bits, a.new_param[i]);
    return bits;
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  static constexpr int64_t kLine = NextBytes::kLine;
  // Number of elements whose successors are prefetched at once.
  static constexpr int64_t kFetched = 4 * kLine;

  // Prefetches one line of each stream in turn, evenly over the elements. The divisions of a rule
  // take so long that memory would otherwise idle; all lines at once would delay the rule. For
  // narrow elements some lines are prefetched twice, which costs less than a branch.
  KAON_HOST_DEVICE static void FetchNext(const ElementWiseArrays<Rule>& a, int64_t i) {
    for (int64_t at = i; at < i + kFetched; at += kLine) {
      for (int stream = 0; stream < 2 + num_slots; ++stream) {
        __builtin_prefetch(a.next[stream].from + at / kLine * a.next[stream].line_bytes);
      }
    }
  }

  // Returns n gradients from `begin` on as fp32: in place, or in `room`.
  KAON_HOST_DEVICE static const float* Widened(const ElementWiseArrays<Rule>& a, int64_t begin,
                                               int64_t n, float* room) {
    switch (a.grad_dtype) {
      case DType::kFloat32:
        return reinterpret_cast<const float*>(a.grad) + begin;
      case DType::kBFloat16:
        ExpandBFloat16::Run(a.grad + 2 * begin, room, n);
        return room;
      case DType::kFloat16:
        ExpandFloat16::Run(a.grad + 2 * begin, room, n);
        return room;
    }
    return room;
  }

  KAON_HOST_DEVICE static void StepElements(const typename Rule::Scalars& s,
                                            const ElementWiseArrays<Rule>& a, const float* grad,
                                            int64_t begin, int64_t n, float* new_param) {
    const float* const param = a.param + begin;
    float* slots[Rule::kMaxSlots] = {};
    for (int k = 0; k < num_slots; ++k) slots[k] = a.state[k] + begin;
      // The elements are independent of each other, even if new_param is param.
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < n; ++i) {
      float state[Rule::kMaxSlots] = {};
      for (int k = 0; k < num_slots; ++k) state[k] = slots[k][i];
      new_param[i] = Rule::Element(s, grad[i], param[i], state);
      for (int k = 0; k < num_slots; ++k) slots[k][i] = state[k];
    }
  }
};

// Runs the kernel of instruction set `isa` for `num_slots`, Rule::kMinSlots .. Rule::kMaxSlots;
// there are num_slots + 1 sums. Returns the kernel's result.
template <typename Rule, int at = Rule::kMinSlots>
uint32_t RunElementWise(InstructionSet isa, int num_slots, const typename Rule::Scalars& scalars,
                        const ElementWiseArrays<Rule>& arrays, uint64_t* sums) {
  DCHECK_LE(arrays.n, kDigestBlock);
  if constexpr (at < Rule::kMaxSlots) {
    if (num_slots > at) return RunElementWise<Rule, at + 1>(isa, num_slots, scalars, arrays, sums);
  }
  return RunOneOf<ElementWiseKernel<Rule, at, Avx512Products>,
                  ElementWiseKernel<Rule, at, Avx2Products>,
                  ElementWiseKernel<Rule, at, ScalarProducts>>(isa, &scalars, &arrays, sums);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ELEMENT_WISE_KERNEL_H_
