// Large matrix products as many small ones: tiles of C, each one call of a library in one thread,
// so that several cores take part and the result is the same for any number of them. Of a symmetric
// result only the tiles on and below the diagonal are computed. Owned by its backend; safe from
// several threads at once.
#ifndef KAON_KERNELS_TILED_GEMM_H_
#define KAON_KERNELS_TILED_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/gemm.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

class TiledGemm final : public Gemm {
 public:
  // Rows of a tile. A product of fewer is one call, its symmetry unused.
  static constexpr int64_t kTileRows = 192;

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

#endif  // KAON_KERNELS_TILED_GEMM_H_
