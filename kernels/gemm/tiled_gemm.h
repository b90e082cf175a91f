// Splits large matrix products into tiles of C, each one call of a library in one thread. So
// several cores work on a product, and the result is the same for any number of them. If the result
// is symmetric, only tiles on and below the diagonal are computed.
// A long inner dimension is split into pieces whose sums are added in float64. A library sums in
// fp32 alone; products of one sign then miss the error limit [N9] (1x30000 by 6e-5). The backend
// owns it; several threads may use it concurrently.
#ifndef KAON_KERNELS_GEMM_TILED_GEMM_H_
#define KAON_KERNELS_GEMM_TILED_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace kaon::kernels {

class TiledGemm final : public Gemm {
 public:
  // Rows of a tile. A product with fewer rows is one call and does not use symmetry.
  static constexpr int64_t kTileRows = 192;
  // Maximum number of products that one call sums up, for fewer than kManyRows rows and for more.
  // oneDNN rounds each of 512 equal terms into the sum of one row, which is then off by at most
  // 1e-6. With many rows it splits sums itself, and is off by 5e-6 at any length up to 4096.
  // Rounding to bf16 costs 4e-3: there longer calls are exact enough, and faster.
  static constexpr int64_t kManyRows = 64;
  static constexpr int64_t kLongestSumOfFewRows = 512;
  static constexpr int64_t kLongestSum = 4096;
  static constexpr int64_t kLongestBFloat16Sum = 16384;
  // Columns of a tile whose pieces are added up at a time: they fit into the second-level cache.
  static constexpr int64_t kSummedCols = 1024;

  // `pool` must outlive this. `gemm` computes in the calling thread.
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
