// The threads of one block of a CUDA kernel, run on the host: each is a fiber, and blocks run one
// after the other in seeded order. It finds missing barriers (other bits under another seed, or
// ThreadSanitizer, to which each fiber is a thread), barriers that not all threads reach, and reads
// of shared memory that nobody wrote. Memory-model subtleties and time have no counterpart here.
// One thread at a time uses a block; several blocks may run on several threads.
#ifndef KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_
#define KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

// ThreadSanitizer leaves alone what the fibers' own machinery reads and writes.
#define KAON_UNSEEN __attribute__((no_sanitize("thread")))

namespace kaon::kernels::cuda::on_host {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

class Block {
 public:
  static constexpr int kMostThreads = 1024;
  static constexpr size_t kSharedBytes = 227 * 1024;

  // The block that the calling host thread runs.
  static Block& Current();

  Block(int threads, uint64_t seed);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs `body` on every thread of the block.
  void Run(Index block, Index grid, uint32_t dynamic_shared_bytes,
           const std::function<void()>& body);

  // Called by the body.

  Index thread() const { return {static_cast<unsigned>(now_), 0, 0}; }
  Index block() const { return block_; }
  Index dim() const { return {static_cast<unsigned>(count_), 1, 1}; }
  Index grid() const { return grid_; }
  // Shared memory, filled with NaN at the start of each block.
  std::byte* shared(size_t bytes);
  unsigned char* dynamic_shared();
  // All threads of the block must come to the same place, which `where` names.
  void Barrier(const char* where);
  // All threads of a warp must come. Returns the value of lane `from` of the warp. Orders no
  // memory, as on the device.
  uint64_t Shuffle(uint64_t value, int from);
  // Orders the memory accesses of a warp.
  void SyncWarp();
  // Returns once somebody has called Wake.
  void Poll();
  void Wake();
  // Runs `work` at some later time, in any order, as the copy engine would.
  void Defer(std::function<void()> work);
  // Tells ThreadSanitizer that what came before a release is seen after an acquire of the token.
  static void Release(const void* token);
  static void Acquire(const void* token);

 private:
  enum class State { kReady, kPolling, kAtBarrier, kInWarp, kDone };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    State state = State::kReady;
    // Place of the barrier or warp operation that it waits at.
    const char* where = nullptr;
    uint64_t exchanged = 0;
    void* tsan = nullptr;
  };

  static void Enter();
  void Wait(State state, const char* where);
  void Switch(ucontext_t& from, ucontext_t& to, void* tsan);
  bool Step();
  void RunDeferred(uint64_t draw);
  void ReleaseWarp(int base);
  void ReleaseBarrier();

  const int count_;
  const std::unique_ptr<Fiber[]> fibers_;
  std::mt19937_64 random_;
  std::vector<std::byte> shared_;
  uint32_t dynamic_shared_bytes_ = 0;
  std::vector<std::function<void()>> deferred_;
  const std::function<void()>* body_ = nullptr;
  ucontext_t scheduler_;
  void* scheduler_tsan_ = nullptr;
  int now_ = 0;
  Index block_;
  Index grid_;
};

// Runs all blocks of a grid, in an order that `seed` chooses.
void RunGrid(uint64_t seed, int64_t blocks, int threads, uint32_t dynamic_shared_bytes,
             const std::function<void()>& body);

template <typename T>
T ShuffleAs(T value, int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Block::Current().Shuffle(bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace kaon::kernels::cuda::on_host

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::kaon::kernels::cuda::on_host::Block::Current().thread())
#define blockIdx (::kaon::kernels::cuda::on_host::Block::Current().block())
#define blockDim (::kaon::kernels::cuda::on_host::Block::Current().dim())
#define gridDim (::kaon::kernels::cuda::on_host::Block::Current().grid())
#define KAON_TEXT_OF(x) #x
#define KAON_PLACE_OF(line) __FILE__ ":" KAON_TEXT_OF(line)
#define __syncthreads() \
  ::kaon::kernels::cuda::on_host::Block::Current().Barrier(KAON_PLACE_OF(__LINE__))

inline void __syncwarp() { ::kaon::kernels::cuda::on_host::Block::Current().SyncWarp(); }

// Lanes past the end of the warp get their own value.
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int from = lane + static_cast<int>(delta);
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value, from < 32 ? from : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value,
                                                   static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return ::kaon::kernels::cuda::on_host::ShuffleAs(value, from);
}
// Relaxed, as on the device.
template <typename T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicMax(T* to, T value) {
  T old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

#endif  // KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_
