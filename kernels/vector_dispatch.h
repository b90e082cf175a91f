// Runs one loop, compiled for several instruction sets, in the widest set of this machine or in the
// chosen one. The loops write every fused operation as std::fma and are built with
// -ffp-contract=off, so all versions give the same bits. Explicit targets instead of target_clones:
// the latter need ifuncs, which sanitizers cannot start under. Any thread; the choice holds for the
// process.
#ifndef KAON_KERNELS_VECTOR_DISPATCH_H_
#define KAON_KERNELS_VECTOR_DISPATCH_H_

#include <atomic>

#include "kernels/host_device.h"

namespace kaon::kernels {

enum class InstructionSet { kScalar, kAvx2, kAvx512 };

// Returns the widest instruction set of this machine.
inline InstructionSet WidestInstructionSet() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kScalar;
}

// The set that RunVectorized uses; the widest by default.
inline std::atomic<InstructionSet>& ChosenInstructionSet() {
  static std::atomic<InstructionSet> chosen = WidestInstructionSet();
  return chosen;
}

#if defined(__x86_64__)
#define KAON_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define KAON_TARGET_AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define KAON_TARGET_AVX2
#define KAON_TARGET_AVX512
#endif

template <typename Kernel, typename... Args>
auto RunScalar(Args... args) {
  return Kernel::Run(args...);
}

template <typename Kernel, typename... Args>
KAON_TARGET_AVX2 auto RunAvx2(Args... args) {
  return Kernel::Run(args...);
}

template <typename Kernel, typename... Args>
KAON_TARGET_AVX512 auto RunAvx512(Args... args) {
  return Kernel::Run(args...);
}

// Calls one of the three functions, for instruction set `isa`, which this machine must have. Run is
// a static KAON_HOST_DEVICE function, so that its body is compiled for each set.
template <typename ForAvx512, typename ForAvx2, typename ForScalar, typename... Args>
auto RunOneOf(InstructionSet isa, Args... args) {
  switch (isa) {
    case InstructionSet::kAvx512:
      return RunAvx512<ForAvx512>(args...);
    case InstructionSet::kAvx2:
      return RunAvx2<ForAvx2>(args...);
    case InstructionSet::kScalar:
      break;
  }
  return RunScalar<ForScalar>(args...);
}

template <typename Kernel, typename... Args>
auto RunFor(InstructionSet isa, Args... args) {
  return RunOneOf<Kernel, Kernel, Kernel>(isa, args...);
}

template <typename Kernel, typename... Args>
auto RunVectorized(Args... args) {
  return RunFor<Kernel>(ChosenInstructionSet().load(std::memory_order_relaxed), args...);
}

// Same as above for loops that name their registers: calls Kernel<bytes of a register>::Run.
template <template <int> class Kernel, typename... Args>
auto RunInRegisters(Args... args) {
  return RunOneOf<Kernel<64>, Kernel<32>, Kernel<16>>(
      ChosenInstructionSet().load(std::memory_order_relaxed), args...);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_VECTOR_DISPATCH_H_
