// Large matrix products as many small ones: tiles of C, each one call of a library in one thread,
// so that several cores take part and the result is the same for any number of them. Of a symmetric
// result only the tiles on and below the diagonal are computed. A long inner dimension is cut in
// pieces whose sums are added in float64: a library adds up all of it in fp32, and products of one
// sign then miss [N9] (1x30000 by 6e-5). Owned by its backend; safe from several threads at once.
#ifndef KAON_KERNELS_GEMM_TILED_GEMM_H_
#define KAON_KERNELS_GEMM_TILED_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/gemm/gemm.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

class TiledGemm final : public Gemm {
 public:
  // Rows of a tile. A product of fewer is one call, its symmetry unused.
  static constexpr int64_t kTileRows = 192;
  // Products that one call sums up at most, with fewer than kManyRows rows and with more. oneDNN
  // rounds each of 512 equal terms into the sum of one row, which is then off by 1e-6 at most; with
  // many rows it cuts sums itself, and is off by 5e-6 at any length up to 4096. A bf16 value is
  // rounded by 4e-3: longer calls of it are exact enough, and faster.
  static constexpr int64_t kManyRows = 64;
  static constexpr int64_t kLongestSumOfFewRows = 512;
  static constexpr int64_t kLongestSum = 4096;
  static constexpr int64_t kLongestBFloat16Sum = 16384;
  // Columns of a tile whose pieces are added up at a time: they fit into the second cache.
  static constexpr int64_t kSummedCols = 1024;

  // `pool` outlives it. `gemm` computes in the calling thread.
  TiledGemm(std::unique_ptr<Gemm> gemm, ThreadPool& pool);

  absl::string_view name() const override { return gemm_->name(); }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override;
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override;

 private:
  const std::unique_ptr<Gemm> gemm_;
  ThreadPool& pool_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_TILED_GEMM_H_
