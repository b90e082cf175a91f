// The checked longjmp takes a jump to another stack for an error.
#undef _FORTIFY_SOURCE

#include "kernels/cuda/on_host/block.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

// swapcontext makes a system call for the signal mask at each switch. The sanitizers need it.
#if !defined(KAON_TSAN) && !defined(KAON_ASAN)
#define KAON_JUMP 1
#endif
#if defined(KAON_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace kaon::kernels::cuda::on_host {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kWarp = 32;
// A byte pattern that is a NaN in every float format.
constexpr std::byte kUnwritten{0xff};
// Of 1024 draws, this many run deferred work while threads are ready.
constexpr uint64_t kDeferredDraws = 8;
// Alignment of shared memory, and how far behind it a stray write is found.
constexpr size_t kAlignment = 1024;
constexpr size_t kMargin = 256;
// At the end of each stack, to find an overflow.
constexpr uint64_t kGuard = 0x6b616f6e67756172;

thread_local Block* current = nullptr;

}  // namespace

KAON_UNSEEN Block& Block::Current() { return *current; }

Block::Block(int threads, uint64_t seed)
    : count_(threads),
      owned_fibers_(std::make_unique<Fiber[]>(static_cast<size_t>(threads))),
      fibers_(owned_fibers_.get()),
      random_(seed),
      static_shared_(kStaticSharedBytes),
      dynamic_shared_(kDynamicSharedBytes) {
  CHECK(threads > 0 && threads <= kMostThreads) << "a block has 1 .. 1024 threads, not " << threads;
  for (int i = 0; i < count_; ++i) {
    // Not zeroed: most threads touch little of it.
    fibers_[i].stack.reset(new char[kStackBytes]);
    std::memcpy(fibers_[i].stack.get(), &kGuard, sizeof(kGuard));
#if defined(KAON_TSAN)
    fibers_[i].tsan = __tsan_create_fiber(0);
#endif
  }
}

Block::~Block() {
#if defined(KAON_TSAN)
  for (int i = 0; i < count_; ++i) __tsan_destroy_fiber(fibers_[i].tsan);
#endif
}

KAON_UNSEEN void Block::Run(Index block, Index grid, uint32_t dynamic_shared_bytes,
                            const std::function<void()>& body) {
  CHECK_LE(dynamic_shared_bytes, kDynamicSharedBytes);
  block_ = block;
  grid_ = grid;
  body_ = &body;
  static_shared_.Poison(0);
  dynamic_shared_.Poison(dynamic_shared_bytes);
#if defined(KAON_TSAN)
  scheduler_tsan_ = __tsan_get_current_fiber();
#endif
  Block* const outer = std::exchange(current, this);
  num_done_ = 0;
  for (int i = 0; i < count_; ++i) {
    SetState(i, State::kReady);
    if (!fibers_[i].scratch_used) continue;
    std::fill_n(fibers_[i].scratch, kScratchBytes, std::byte{0});
    fibers_[i].scratch_used = false;
  }
  Release(&start_);
  while (Step()) {
  }
  Acquire(&end_);
  current = outer;
  static_shared_.CheckBounds();
  dynamic_shared_.CheckBounds();
}

KAON_UNSEEN std::byte* Block::shared(size_t bytes) {
  CHECK_LE(bytes, kStaticSharedBytes);
  static_shared_.used = std::max(static_shared_.used, bytes);
  return static_shared_.start;
}

Block::SharedPart::SharedPart(size_t bytes)
    : memory(bytes + kAlignment + kMargin, kUnwritten),
      start(memory.data() +
            (kAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kAlignment) % kAlignment) {}

KAON_UNSEEN void Block::SharedPart::Poison(size_t next_bytes) {
  std::fill_n(start, used, kUnwritten);
  used = next_bytes;
}

KAON_UNSEEN void Block::SharedPart::CheckBounds() const {
  CHECK(std::all_of(start + used, start + used + kMargin,
                    [](std::byte b) { return b == kUnwritten; }))
      << "a block wrote past the " << used << " bytes of its shared memory";
}

KAON_UNSEEN void Block::Enter() {
  // The fiber runs its thread of one block after the other.
  while (true) {
    Block* const block = current;
    Acquire(&block->start_);
    (*block->body_)();
    Release(&block->end_);
    block->Wait(State::kDone, nullptr);
  }
}

KAON_UNSEEN void Block::Barrier(const char* where) {
  const void* const token = &barrier_tokens_[num_barriers_ % 2];
  Release(token);
  Wait(State::kAtBarrier, where);
  Acquire(token);
}

KAON_UNSEEN uint64_t Block::Shuffle(uint64_t value, int from) {
  const int self = now_;
  fibers_[self].exchanged = value;
  Wait(State::kInWarp, "a shuffle");
  const uint64_t got = fibers_[self / kWarp * kWarp + from].exchanged;
  Wait(State::kInWarp, "the end of a shuffle");
  return got;
}

KAON_UNSEEN void Block::SyncWarp() {
  const int warp = now_ / kWarp;
  const void* const token = &warp_tokens_[warp * 2 + num_warp_waits_[warp] % 2];
  Release(token);
  Wait(State::kInWarp, "a __syncwarp");
  Acquire(token);
}

KAON_UNSEEN void Block::Poll() { Wait(State::kPolling, "a poll"); }

KAON_UNSEEN void Block::Wake() {
  for (int i = 0; i < count_; ++i) {
    if (fibers_[i].state == State::kPolling) SetState(i, State::kReady);
  }
}

KAON_UNSEEN void Block::Defer(std::function<void()> work) {
  Acquire(&deferred_);
  deferred_.push_back(std::move(work));
  ++num_deferred_;
  Release(&deferred_);
}

KAON_UNSEEN void* Block::scratch() {
  fibers_[now_].scratch_used = true;
  return fibers_[now_].scratch;
}

KAON_UNSEEN void Block::Release([[maybe_unused]] const void* token) {
#if defined(KAON_TSAN)
  __tsan_release(const_cast<void*>(token));
#endif
}

KAON_UNSEEN void Block::Acquire([[maybe_unused]] const void* token) {
#if defined(KAON_TSAN)
  __tsan_acquire(const_cast<void*>(token));
#endif
}

// splitmix64. The standard generators are not unseen.
KAON_UNSEEN uint64_t Block::Draw() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

KAON_UNSEEN void Block::SetState(int thread, State state) {
  const int warp = thread / kWarp;
  const uint32_t bit = uint32_t{1} << (thread % kWarp);
  State& now = fibers_[thread].state;
  if (now == State::kInWarp) --in_warp_[warp];
  if (state == State::kInWarp) ++in_warp_[warp];
  if (state == State::kDone) ++num_done_;
  now = state;
  ready_[warp] = state == State::kReady ? ready_[warp] | bit : ready_[warp] & ~bit;
}

KAON_UNSEEN void Block::Wait(State state, const char* where) {
  Fiber& self = fibers_[now_];
  SetState(now_, state);
  self.where = where;
  SwitchBack(self);
}

KAON_UNSEEN void Block::Prepare(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Block::Enter, 0);
}

KAON_UNSEEN void Block::SwitchTo(Fiber& fiber) {
#if defined(KAON_TSAN)
  // 1: the switch itself orders nothing.
  __tsan_switch_to_fiber(fiber.tsan, 1);
#endif
  const bool entered = fiber.entered;
  fiber.entered = true;
  if (!entered) Prepare(fiber);
#if defined(KAON_JUMP)
  if (_setjmp(scheduler_jump_) != 0) return;
  if (entered) _longjmp(fiber.jump, 1);
  setcontext(&fiber.context);
#else
  swapcontext(&scheduler_, &fiber.context);
#endif
}

KAON_UNSEEN void Block::SwitchBack(Fiber& fiber) {
#if defined(KAON_TSAN)
  __tsan_switch_to_fiber(scheduler_tsan_, 1);
#endif
#if defined(KAON_JUMP)
  if (_setjmp(fiber.jump) == 0) _longjmp(scheduler_jump_, 1);
#else
  swapcontext(&fiber.context, &scheduler_);
#endif
}

// Returns a ready thread, mostly of the warp that ran before, so that warps get far ahead of each
// other; -1 if none is ready.
KAON_UNSEEN int Block::PickReady(uint64_t draw) const {
  int warp = now_ / kWarp;
  uint64_t choice = draw / 64;
  if (ready_[warp] == 0 || draw % 64 == 0) {
    int num_ready = 0;
    for (const uint32_t ready : ready_) num_ready += std::popcount(ready);
    if (num_ready == 0) return -1;
    choice %= static_cast<uint64_t>(num_ready);
    for (warp = 0; choice >= static_cast<uint64_t>(std::popcount(ready_[warp])); ++warp) {
      choice -= static_cast<uint64_t>(std::popcount(ready_[warp]));
    }
  } else {
    choice %= static_cast<uint64_t>(std::popcount(ready_[warp]));
  }
  uint32_t ready = ready_[warp];
  for (; choice > 0; --choice) ready &= ready - 1;
  return warp * kWarp + std::countr_zero(ready);
}

// Runs one thread or deferred work. Returns false once all are done.
KAON_UNSEEN bool Block::Step() {
  if (num_done_ == count_ && num_deferred_ == 0) return false;
  const uint64_t draw = Draw();
  const int thread = PickReady(draw);
  if (num_deferred_ > 0 && (thread < 0 || draw / 64 % 1024 < kDeferredDraws)) {
    RunDeferred(draw >> 16);
    return true;
  }
  if (thread < 0) {
    ReleaseBarrier();
    return true;
  }
  now_ = thread;
  SwitchTo(fibers_[thread]);
  CHECK(std::memcmp(fibers_[thread].stack.get(), &kGuard, sizeof(kGuard)) == 0)
      << "thread " << thread << " used more than " << kStackBytes << " bytes of stack";
  if (fibers_[thread].state == State::kInWarp) ReleaseWarp(thread / kWarp * kWarp);
  return true;
}

KAON_UNSEEN void Block::RunDeferred(uint64_t draw) {
  Acquire(&deferred_);
  const auto at = static_cast<std::ptrdiff_t>(draw % num_deferred_);
  const std::function<void()> work = std::move(deferred_[static_cast<size_t>(at)]);
  deferred_.erase(deferred_.begin() + at);
  --num_deferred_;
  Release(&deferred_);
  work();
}

KAON_UNSEEN void Block::ReleaseWarp(int base) {
  const int end = std::min(base + kWarp, count_);
  if (in_warp_[base / kWarp] < end - base) return;
  for (int i = base; i < end; ++i) {
    if (fibers_[i].where != fibers_[base].where) return;
  }
  for (int i = base; i < end; ++i) SetState(i, State::kReady);
  ++num_warp_waits_[base / kWarp];
}

KAON_UNSEEN void Block::ReleaseBarrier() {
  const char* where = nullptr;
  for (int i = 0; i < count_; ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.state == State::kDone) continue;
    if (where == nullptr) where = fiber.where;
    CHECK(fiber.state == State::kAtBarrier && fiber.where == where)
        << "threads of a block wait at different places: " << where << " and " << fiber.where;
    SetState(i, State::kReady);
  }
  ++num_barriers_;
}

void RunGrid(uint64_t seed, int64_t blocks, int threads, uint32_t dynamic_shared_bytes,
             const std::function<void()>& body) {
  // Kept: its stacks have been touched.
  static thread_local std::unique_ptr<Block> kept;
  if (kept == nullptr || kept->count() != threads) kept = std::make_unique<Block>(threads, seed);
  kept->Seed(seed);
  std::vector<unsigned> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  const Index grid = {static_cast<unsigned>(blocks), 1, 1};
  for (const unsigned i : order) kept->Run({i, 0, 0}, grid, dynamic_shared_bytes, body);
}

}  // namespace kaon::kernels::cuda::on_host
