// Instructions of sm_90a that CUDA C++ has no names for: mbarriers, tensor copies (TMA), products
// of warpgroups (WGMMA), registers per thread. The only file with PTX. on_host/
// instructions_on_host.h has a twin of each. Called by kernels only; no state.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_INSTRUCTIONS_H_
#define KAON_KERNELS_CUDA_PRODUCTS_INSTRUCTIONS_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/tensor_map.h"
#include "kernels/dtype.h"

#if !defined(__CUDACC__)
#include "kernels/cuda/on_host/instructions_on_host.h"
#else

namespace kaon::kernels::cuda {

// Returns the address within shared memory.
KAON_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends after `count` arrivals and all expected bytes.
KAON_DEVICE void InitBarrier(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count)
               : "memory");
}

// Makes the thread's initialised barriers known to the copy engine.
KAON_DEVICE void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

KAON_DEVICE void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Arrives, and adds to the bytes that the phase waits for.
KAON_DEVICE void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Waits until the phase of that parity has ended.
KAON_DEVICE void AwaitPhase(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
}

KAON_DEVICE void PrefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Starts the copy of a box from column x and row y of matrix z. Its bytes count for the barrier.
KAON_DEVICE void LoadBox(void* to, const TensorMap& map, uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// Orders the thread's accesses of registers before the products that follow.
KAON_DEVICE void FenceProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of products.
KAON_DEVICE void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all groups but the last `left` have read their operands and written their sums.
template <int left>
KAON_DEVICE void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

#define KAON_IO4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KAON_IO32(i)                                                                 \
  KAON_IO4(i), KAON_IO4(i + 4), KAON_IO4(i + 8), KAON_IO4(i + 12), KAON_IO4(i + 16), \
      KAON_IO4(i + 20), KAON_IO4(i + 24), KAON_IO4(i + 28)
#define KAON_IO128 KAON_IO32(0), KAON_IO32(32), KAON_IO32(64), KAON_IO32(96)

// Waits for all products. The compiler may not read `d` earlier.
KAON_DEVICE void AwaitSums(float (&d)[128]) {
  AwaitProducts<0>();
  asm volatile("" : KAON_IO128::"memory");
}

// clang-format off
#define KAON_MULTIPLY(type)                                                                       \
  asm volatile(                                                                                   \
      "{ .reg .pred p; setp.ne.u32 p, %130, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"                           \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                    \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                          \
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                          \
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"                          \
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                          \
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                          \
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"              \
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"         \
      " %128, %129, p, 1, 1, 0, 0; }\n"                                                           \
      : KAON_IO128                                                                                \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))
// clang-format on

// The warpgroup's d (64 x 256) <- a (64 x 16) b^T (256 x 16), or d + a b^T if `add`. a and b are
// descriptors. Element (row, col) is d[col / 8 * 4 + row % 16 / 8 * 2 + col % 2] of the thread
// row / 16 * 32 + row % 8 * 4 + col % 8 / 2.
template <DType dtype>
KAON_DEVICE void Multiply(float (&d)[128], uint64_t a, uint64_t b, bool add) {
  static_assert(dtype == DType::kBFloat16 || dtype == DType::kFloat16);
  if constexpr (dtype == DType::kBFloat16) {
    KAON_MULTIPLY("bf16");
  } else {
    KAON_MULTIPLY("f16");
  }
}

#undef KAON_MULTIPLY
#undef KAON_IO128
#undef KAON_IO32
#undef KAON_IO4

// For all warps of a warpgroup: gives registers back, or waits until that many are free.
template <int registers>
KAON_DEVICE void ShrinkRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
KAON_DEVICE void GrowRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace kaon::kernels::cuda

#endif

namespace kaon::kernels::cuda {

// Returns the descriptor of an operand in shared memory: rows of 128 bytes with the 128-byte
// swizzle, groups of 8 rows `group_bytes` apart.
KAON_DEVICE uint64_t OperandDescriptor(const void* at, int group_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return static_cast<uint64_t>((SharedAddress(at) & 0x3ffff) >> 4) | (uint64_t{1} << 16) |
         (static_cast<uint64_t>(group_bytes >> 4) << 32) | kSwizzle128;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_INSTRUCTIONS_H_
