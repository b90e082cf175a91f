// The threads of one block of a CUDA kernel, run on the host. Each thread is a fiber. Blocks run
// one after the other in seeded order. A block finds missing barriers: other bits under another
// seed, or a race for ThreadSanitizer, to which each fiber is a thread. It aborts on barriers that
// not all threads reach, and fills shared memory with NaN. Memory-model subtleties and time have no
// counterpart here. One thread at a time uses a block; several blocks may run on several threads.
#ifndef KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_
#define KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_

#include <ucontext.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define KAON_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define KAON_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KAON_TSAN 1
#elif __has_feature(address_sanitizer)
#define KAON_ASAN 1
#endif
#endif

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
  static constexpr size_t kStaticSharedBytes = 48 * 1024;
  static constexpr size_t kDynamicSharedBytes = 227 * 1024;
  static constexpr size_t kScratchBytes = 1024;

  // The block that the calling host thread runs.
  static Block& Current();

  Block(int threads, uint64_t seed);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Restarts the order of threads from a seed.
  void Seed(uint64_t seed) { random_ = seed; }
  int count() const { return count_; }
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
  unsigned char* dynamic_shared() {
    return reinterpret_cast<unsigned char*>(dynamic_shared_.start);
  }
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
  // Draws a number for a choice that the device leaves open.
  uint64_t Draw();
  // Memory of the thread for the state of its instructions, zero at the start of each block.
  void* scratch();
  // Tells ThreadSanitizer that what came before a release is seen after an acquire of the token.
  static void Release(const void* token);
  static void Acquire(const void* token);

 private:
  enum class State { kReady, kPolling, kAtBarrier, kInWarp, kDone };
  struct Fiber {
    // Entered once; later switches use `jump`.
    ucontext_t context;
    std::jmp_buf jump;
    bool entered = false;
    std::unique_ptr<char[]> stack;
    State state = State::kDone;
    // Place of the barrier or warp operation that it waits at.
    const char* where = nullptr;
    uint64_t exchanged = 0;
    alignas(16) std::byte scratch[kScratchBytes] = {};
    bool scratch_used = false;
    void* tsan = nullptr;
  };

  // Memory of which the block may write the first bytes; the rest keeps its NaN.
  struct SharedPart {
    explicit SharedPart(size_t bytes);
    void Poison(size_t next_bytes);
    void CheckBounds() const;
    std::vector<std::byte> memory;
    // Aligned start.
    std::byte* start;
    size_t used = 0;
  };

  static void Enter();
  void SetState(int thread, State state);
  void Wait(State state, const char* where);
  void SwitchTo(Fiber& fiber);
  static void Prepare(Fiber& fiber);
  void SwitchBack(Fiber& fiber);
  bool Step();
  int PickReady(uint64_t draw) const;
  void RunDeferred(uint64_t draw);
  void ReleaseWarp(int base);
  void ReleaseBarrier();

  const int count_;
  const std::unique_ptr<Fiber[]> owned_fibers_;
  // As a plain pointer: ThreadSanitizer sees what the standard containers read.
  Fiber* const fibers_;
  uint64_t random_;
  SharedPart static_shared_;
  SharedPart dynamic_shared_;
  std::vector<std::function<void()>> deferred_;
  size_t num_deferred_ = 0;
  const std::function<void()>* body_ = nullptr;
  ucontext_t scheduler_;
  std::jmp_buf scheduler_jump_;
  void* scheduler_tsan_ = nullptr;
  int now_ = 0;
  // A bit for each ready thread of a warp, and the number of threads at a warp operation.
  std::array<uint32_t, kMostThreads / 32> ready_ = {};
  std::array<int, kMostThreads / 32> in_warp_ = {};
  int num_done_ = 0;
  // Tokens for ThreadSanitizer. Waits alternate between two, since one thread may release the next
  // wait before another has acquired the last.
  char start_;
  char end_;
  char barrier_tokens_[2];
  char warp_tokens_[kMostThreads / 32 * 2];
  unsigned num_barriers_ = 0;
  unsigned num_warp_waits_[kMostThreads / 32] = {};
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

#endif  // KAON_KERNELS_CUDA_ON_HOST_BLOCK_H_
