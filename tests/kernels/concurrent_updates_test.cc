// How many updates the cpu backend runs concurrently, and what they allocate.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/update_workspace.h"

namespace kaon::kernels {
namespace {

std::unique_ptr<Backend> BackendOf(int threads) {
  BackendOptions options;
  options.gemm = "onednn";
  options.threads = threads;
  return *CreateBackend(options);
}

// Vectors of these sizes; a size of 0 is a frozen vector of 100 elements.
size_t NumConcurrent(const std::vector<uint64_t>& sizes, int threads = 2,
                     const RuleConfig& first = AdamWConfig()) {
  const RuleConfig others = AdamWConfig();
  const uint64_t frozen = 100;
  std::vector<SizedUpdate> updates;
  for (const uint64_t& size : sizes) {
    const RuleConfig* const rule = &size == &sizes[0] ? &first : &others;
    updates.push_back({size == 0 ? nullptr : rule, {size == 0 ? &frozen : &size, 1}});
  }
  return BackendOf(threads)->NumConcurrentUpdates(updates);
}

constexpr uint64_t kSmall = kSmallUpdateElements;

TEST(ConcurrentUpdatesTest, SmallOnesThatFollowOneAnother) {
  EXPECT_EQ(NumConcurrent({kSmall}), 1u);
  EXPECT_EQ(NumConcurrent({kSmall, kSmall, 1}), 3u);
  EXPECT_EQ(NumConcurrent({kSmall, kSmall, kSmall + 1, 6}), 2u);
  // A large one has all threads for itself.
  EXPECT_EQ(NumConcurrent({kSmall + 1, kSmall + 1}), 1u);
  EXPECT_EQ(NumConcurrent({uint64_t{1} << 40, 6}), 1u);
  // Readers do not wait for more than 512 Ki elements per thread.
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(100, kSmall)), 4u);
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(100, kSmall), 8), 16u);
  EXPECT_EQ(NumConcurrent(std::vector<uint64_t>(10000, 64)), 10000u);
}

TEST(ConcurrentUpdatesTest, OnlyIfEveryThreadHasWork) {
  EXPECT_EQ(NumConcurrent({100, 100}, 1), 1u);
  EXPECT_EQ(NumConcurrent({100, 100}, 3), 1u);
  EXPECT_EQ(NumConcurrent({100, 100, 100}, 3), 3u);
  // Most of the work is that of one of them.
  EXPECT_EQ(NumConcurrent({1000, 100, 100}), 1u);
  EXPECT_EQ(NumConcurrent({100, 100, 1000}), 2u);
  EXPECT_EQ(NumConcurrent({100, 100}, 2, MuonConfig()), 1u);
  // A frozen parameter is no work.
  EXPECT_EQ(NumConcurrent({100, 0}), 1u);
  EXPECT_EQ(NumConcurrent({100, 0, 100}), 3u);
}

TEST(ConcurrentUpdatesTest, AllocateWhatTheLargestOfThemDo) {
  const RuleConfig muon = MuonConfig();
  const uint64_t small[] = {64, 64};
  const uint64_t large[] = {256, 256};
  const std::unique_ptr<Backend> backend = BackendOf(2);
  const auto alone = [](absl::Span<const uint64_t> shape, uint32_t threads) {
    return UpdateWorkspaceBytes("cpu/onednn", threads, MuonConfig(), shape);
  };
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, large}}), alone(large, 2));
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, small}, {&muon, large}, {nullptr, large}}),
            alone(small, 1) + alone(large, 1));
  // Two threads run two of them at a time.
  EXPECT_EQ(backend->WorkspaceBytes({{&muon, small}, {&muon, large}, {&muon, large}}),
            2 * alone(large, 1));
  EXPECT_EQ(backend->WorkspaceBytes({{nullptr, large}}), 0u);
}

}  // namespace
}  // namespace kaon::kernels
