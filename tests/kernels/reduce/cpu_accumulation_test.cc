// Cases that need host memory. backend_conformance_fold.h and backend_conformance_mean.h have what
// every accumulation must do.
#include "kernels/reduce/cpu_accumulation.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/reduce/fold.h"
#include "kernels/region.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

// Blocks begin where a chunk does, whatever its slices are and wherever it is in the sum.
TEST(CpuAccumulationTest, FoldsASplitChunkAsFoldElementsDoesInOnePiece) {
  const std::vector<float> grad = reference::GaussianVector(2 * kFoldBlockElements + 300, 1);
  const absl::Span<const std::byte> bytes = ConstRegion(grad).host_bytes();
  std::vector<float> expected = reference::GaussianVector(grad.size() + 11, 2);
  std::vector<float> sum = expected;
  double sum_squares = 0;
  FoldElements(DType::kFloat32, bytes.data(), 0.3f, false, absl::MakeSpan(expected).subspan(11),
               &sum_squares);
  ThreadPool pool(1);
  CpuAccumulation accumulation(absl::MakeSpan(sum), pool);
  accumulation.Begin();
  const absl::Span<const std::byte> slices[] = {bytes.subspan(0, 4099), bytes.subspan(4099, 2),
                                                bytes.subspan(4101)};
  accumulation.Fold({DType::kFloat32, slices, 11, 2, 0.3f, false});
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(accumulation.FactsOf(2).sum_squares, sum_squares);
  EXPECT_EQ(accumulation.FactsOf(1).sum_squares, 0);
}

TEST(CpuAccumulationDeathTest, DoesNotFoldBeyondTheSum) {
  std::vector<float> sum(9);
  const std::vector<float> grad(5);
  const absl::Span<const std::byte> bytes = ConstRegion(grad).host_bytes();
  ThreadPool pool(1);
  CpuAccumulation accumulation(absl::MakeSpan(sum), pool);
  EXPECT_DEATH(accumulation.Fold({DType::kFloat32, {&bytes, 1}, 5, 0, 1.0f, true}),
               "elements 5 .. 10 of 9");
}

}  // namespace
}  // namespace kaon::kernels
