#include "kernels/cuda/on_host/block.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/cuda/immediate_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Sums {
  float values[kThreads];
};

// Adds one block's values in a tree; without the barrier inside the tree, other bits under some
// seeds.
void TreeSum(const float* from, float* to, bool with_barrier) {
  Sums& sums = SharedMemory<Sums>();
  const unsigned t = threadIdx.x;
  sums.values[t] = from[blockIdx.x * kThreads + t];
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) sums.values[t] += sums.values[t + half];
    if (with_barrier) __syncthreads();
  }
  if (t == 0) to[blockIdx.x] = sums.values[0];
}

// Returns under how many of 20 seeds the sums differ from a loop's.
int WrongSeeds(bool with_barrier) {
  constexpr int kBlocks = 8;
  std::vector<float> from(kBlocks * kThreads);
  for (size_t i = 0; i < from.size(); ++i) from[i] = 1.0f / static_cast<float>(i + 1);
  std::vector<float> expected = from;
  for (int b = 0; b < kBlocks; ++b) {
    float* const values = &expected[static_cast<size_t>(b * kThreads)];
    for (int half = kThreads / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) values[i] += values[i + half];
    }
  }
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ImmediateStream stream(seed);
    std::vector<float> to(kBlocks);
    Launch(stream, {.blocks = kBlocks, .threads = kThreads}, TreeSum, from.data(), to.data(),
           with_barrier);
    bool equal = true;
    for (int b = 0; b < kBlocks; ++b) {
      equal &= to[static_cast<size_t>(b)] == expected[static_cast<size_t>(b * kThreads)];
    }
    wrong += !equal;
  }
  return wrong;
}

TEST(BlockTest, GivesTheBitsOfALoopUnderEverySeed) { EXPECT_EQ(WrongSeeds(true), 0); }

TEST(BlockDeathTest, FindsAMissingBarrier) {
#if defined(KAON_TSAN)
  EXPECT_EXIT(std::exit(WrongSeeds(false) < 0), ::testing::ExitedWithCode(66), "data race");
#else
  EXPECT_GE(WrongSeeds(false), 5);
#endif
}

void BarriersAtTwoPlaces() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

void PollsForever() {
  if (threadIdx.x % 2 != 0) on_host::Block::Current().Poll();
}

void OverrunsSharedMemory() { DynamicSharedMemory()[1024 + threadIdx.x] = 1; }

TEST(BlockDeathTest, AbortsOnBarriersAtDifferentPlaces) {
  ImmediateStream stream(1);
  EXPECT_DEATH(Launch(stream, {.threads = 64}, BarriersAtTwoPlaces),
               "wait at different places: .*block_test.cc:[0-9]+ and .*block_test.cc:[0-9]+");
}

TEST(BlockDeathTest, AbortsOnAWaitThatNothingEnds) {
  ImmediateStream stream(1);
  EXPECT_DEATH(Launch(stream, {.threads = 64}, PollsForever), "a poll");
}

TEST(BlockDeathTest, AbortsOnAWritePastSharedMemory) {
  ImmediateStream stream(1);
  EXPECT_DEATH(Launch(stream, {.threads = 8, .dynamic_shared_bytes = 1024}, OverrunsSharedMemory),
               "wrote past the 1024 bytes");
}

void ReadsSharedMemory(float* to) {
  Sums& sums = SharedMemory<Sums>();
  to[blockIdx.x * blockDim.x + threadIdx.x] = sums.values[threadIdx.x];
  sums.values[threadIdx.x] = 1;
  reinterpret_cast<float*>(DynamicSharedMemory())[threadIdx.x] = 2;
}

TEST(BlockTest, PoisonsSharedMemoryBeforeEachBlock) {
  std::vector<float> to(3 * 64, 0.0f);
  ImmediateStream stream(1);
  Launch(stream, {.blocks = 3, .threads = 64, .dynamic_shared_bytes = 256}, ReadsSharedMemory,
         to.data());
  for (const float value : to) EXPECT_NE(value, value);
}

void ExchangesValues(int* sums, double* shifted) {
  const int t = static_cast<int>(threadIdx.x);
  int sum = t;
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  sums[t] = sum;
  shifted[t] = __shfl_down_sync(0xffffffffu, 0.5 * t, 5);
}

TEST(BlockTest, ShufflesWithinAWarp) {
  std::vector<int> sums(64);
  std::vector<double> shifted(64);
  ImmediateStream stream(7);
  Launch(stream, {.threads = 64}, ExchangesValues, sums.data(), shifted.data());
  for (int t = 0; t < 64; ++t) {
    EXPECT_EQ(sums[static_cast<size_t>(t)], t < 32 ? 496 : 1520);
    EXPECT_EQ(shifted[static_cast<size_t>(t)], 0.5 * (t % 32 < 27 ? t + 5 : t));
  }
}

#if defined(KAON_TSAN)
void ReadsAfterAShuffle(int* to) {
  Sums& sums = SharedMemory<Sums>();
  const unsigned t = threadIdx.x;
  sums.values[t] = static_cast<float>(t);
  __shfl_xor_sync(0xffffffffu, 0, 1);
  to[t] = static_cast<int>(sums.values[t ^ 1]);
}
#endif

TEST(BlockDeathTest, OrdersNoMemoryInAShuffle) {
#if defined(KAON_TSAN)
  const auto run = [] {
    int to[32];
    ImmediateStream stream(1);
    Launch(stream, {.threads = 32}, ReadsAfterAShuffle, to);
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(66), "data race");
#endif
}

void AwaitsDeferredWork(int* value, bool* done, int* seen) {
  on_host::Block& block = on_host::Block::Current();
  if (threadIdx.x == 0) {
    block.Defer([value, done, &block] {
      *value = 42;
      __atomic_store_n(done, true, __ATOMIC_RELAXED);
      on_host::Block::Release(value);
      block.Wake();
    });
  }
  while (!__atomic_load_n(done, __ATOMIC_RELAXED)) block.Poll();
  on_host::Block::Acquire(value);
  seen[threadIdx.x] = *value;
}

TEST(BlockTest, RunsDeferredWorkBeforeItEnds) {
  int value = 0;
  bool done = false;
  std::vector<int> seen(96);
  ImmediateStream stream(3);
  Launch(stream, {.threads = 96}, AwaitsDeferredWork, &value, &done, seen.data());
  EXPECT_EQ(seen, std::vector<int>(96, 42));
}

void OrdersBlocks(unsigned* next, unsigned* order) {
  if (threadIdx.x == 0) order[atomicAdd(next, 1u)] = blockIdx.x;
}

TEST(BlockTest, RunsEveryBlockInAnOrderThatTheSeedChooses) {
  std::vector<std::vector<unsigned>> orders;
  for (const uint64_t seed : {1, 2, 1}) {
    unsigned next = 0;
    std::vector<unsigned>& order = orders.emplace_back(50);
    ImmediateStream stream(seed);
    Launch(stream, {.blocks = 50, .threads = 4}, OrdersBlocks, &next, order.data());
    EXPECT_EQ(next, 50u);
  }
  EXPECT_EQ(orders[0], orders[2]);
  EXPECT_NE(orders[0], orders[1]);
}

TEST(BlockTest, LaunchCopiesItsArgumentsAndDoesNothingForNoBlocks) {
  unsigned next = 0;
  ImmediateStream stream(1);
  Launch(stream, {.blocks = 0}, OrdersBlocks, &next, nullptr);
  EXPECT_EQ(next, 0u);
}

}  // namespace
}  // namespace kaon::kernels::cuda
