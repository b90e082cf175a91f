#include "kernels/cuda/on_host/block.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#define KAON_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KAON_TSAN 1
#endif
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

thread_local Block* current = nullptr;

}  // namespace

KAON_UNSEEN Block& Block::Current() { return *current; }

Block::Block(int threads, uint64_t seed)
    : count_(threads), fibers_(new Fiber[threads]), random_(seed), shared_(kSharedBytes) {
  CHECK(threads > 0 && threads <= kMostThreads) << "a block has 1 .. 1024 threads, not " << threads;
  // Not zeroed: most threads touch little of it.
  for (int i = 0; i < count_; ++i) fibers_[i].stack.reset(new char[kStackBytes]);
#if defined(KAON_TSAN)
  for (int i = 0; i < count_; ++i) fibers_[i].tsan = __tsan_create_fiber(0);
#endif
}

Block::~Block() {
#if defined(KAON_TSAN)
  for (int i = 0; i < count_; ++i) __tsan_destroy_fiber(fibers_[i].tsan);
#endif
}

KAON_UNSEEN void Block::Run(Index block, Index grid, uint32_t dynamic_shared_bytes,
                            const std::function<void()>& body) {
  CHECK_LE(dynamic_shared_bytes, kSharedBytes);
  block_ = block;
  grid_ = grid;
  body_ = &body;
  dynamic_shared_bytes_ = dynamic_shared_bytes;
  std::fill(shared_.begin(), shared_.end(), kUnwritten);
#if defined(KAON_TSAN)
  scheduler_tsan_ = __tsan_get_current_fiber();
#endif
  Block* const outer = std::exchange(current, this);
  for (int i = 0; i < count_; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.state = State::kReady;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Block::Enter, 0);
  }
  Release(this);
  while (Step()) {
  }
  Acquire(this);
  current = outer;
}

KAON_UNSEEN std::byte* Block::shared(size_t bytes) {
  CHECK_LE(bytes, shared_.size());
  return shared_.data();
}

KAON_UNSEEN unsigned char* Block::dynamic_shared() {
  const auto address = reinterpret_cast<uintptr_t>(shared_.data());
  return reinterpret_cast<unsigned char*>((address + 1023) / 1024 * 1024);
}

KAON_UNSEEN void Block::Enter() {
  Block* const block = current;
  Acquire(block);
  (*block->body_)();
  Release(block);
  block->Wait(State::kDone, nullptr);
}

KAON_UNSEEN void Block::Barrier(const char* where) {
  Release(this);
  Wait(State::kAtBarrier, where);
  Acquire(this);
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
  const Fiber* const warp = &fibers_[now_ / kWarp * kWarp];
  Release(warp);
  Wait(State::kInWarp, "a __syncwarp");
  Acquire(warp);
}

KAON_UNSEEN void Block::Poll() { Wait(State::kPolling, "a poll"); }

KAON_UNSEEN void Block::Wake() {
  for (int i = 0; i < count_; ++i) {
    if (fibers_[i].state == State::kPolling) fibers_[i].state = State::kReady;
  }
}

KAON_UNSEEN void Block::Defer(std::function<void()> work) {
  Acquire(&deferred_);
  deferred_.push_back(std::move(work));
  Release(&deferred_);
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

KAON_UNSEEN void Block::Wait(State state, const char* where) {
  Fiber& self = fibers_[now_];
  self.state = state;
  self.where = where;
  Switch(self.context, scheduler_, scheduler_tsan_);
}

KAON_UNSEEN void Block::Switch(ucontext_t& from, ucontext_t& to, [[maybe_unused]] void* tsan) {
#if defined(KAON_TSAN)
  // 1: the switch itself orders nothing.
  __tsan_switch_to_fiber(tsan, 1);
#endif
  swapcontext(&from, &to);
}

// Runs one ready thread, mostly of the warp that ran before, so that warps get far ahead of each
// other. Returns false once all are done.
KAON_UNSEEN bool Block::Step() {
  std::array<int, kMostThreads> ready;
  std::array<int, kWarp> same_warp;
  size_t num_ready = 0;
  size_t num_same = 0;
  bool live = false;
  for (int i = 0; i < count_; ++i) {
    live |= fibers_[i].state != State::kDone;
    if (fibers_[i].state != State::kReady) continue;
    ready[num_ready++] = i;
    if (i / kWarp == now_ / kWarp) same_warp[num_same++] = i;
  }
  if (!live && deferred_.empty()) return false;
  const uint64_t draw = random_();
  if (!deferred_.empty() && (num_ready == 0 || draw % 1024 < kDeferredDraws)) {
    RunDeferred(draw / 1024);
    return true;
  }
  if (num_ready == 0) {
    ReleaseBarrier();
    return true;
  }
  const bool stays = num_same > 0 && draw % 64 != 0;
  now_ = stays ? same_warp[draw / 64 % num_same] : ready[draw / 64 % num_ready];
  Switch(scheduler_, fibers_[now_].context, fibers_[now_].tsan);
  ReleaseWarp(now_ / kWarp * kWarp);
  return true;
}

KAON_UNSEEN void Block::RunDeferred(uint64_t draw) {
  Acquire(&deferred_);
  const auto at = static_cast<std::ptrdiff_t>(draw % deferred_.size());
  const std::function<void()> work = std::move(deferred_[static_cast<size_t>(at)]);
  deferred_.erase(deferred_.begin() + at);
  Release(&deferred_);
  work();
}

KAON_UNSEEN void Block::ReleaseWarp(int base) {
  const int end = std::min(base + kWarp, count_);
  for (int i = base; i < end; ++i) {
    if (fibers_[i].state != State::kInWarp || fibers_[i].where != fibers_[base].where) return;
  }
  for (int i = base; i < end; ++i) fibers_[i].state = State::kReady;
}

KAON_UNSEEN void Block::ReleaseBarrier() {
  const char* where = nullptr;
  for (int i = 0; i < count_; ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.state == State::kDone) continue;
    if (where == nullptr) where = fiber.where;
    CHECK(fiber.state == State::kAtBarrier && fiber.where == where)
        << "threads of a block wait at different places: " << where << " and " << fiber.where;
    fiber.state = State::kReady;
  }
}

void RunGrid(uint64_t seed, int64_t blocks, int threads, uint32_t dynamic_shared_bytes,
             const std::function<void()>& body) {
  std::vector<unsigned> order(static_cast<size_t>(blocks));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<unsigned>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  Block block(threads, seed);
  const Index grid = {static_cast<unsigned>(blocks), 1, 1};
  for (const unsigned i : order) block.Run({i, 0, 0}, grid, dynamic_shared_bytes, body);
}

}  // namespace kaon::kernels::cuda::on_host
