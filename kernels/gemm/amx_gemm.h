// Gemm of our own on AMX tiles. A matrix is stored in the blocks of blocked_matrix.h; the right
// operand is packed for the tiles once per product, a result is rounded, and mirrored if it is
// symmetric, while it lies in the first cache. fp32 products are another Gemm's. Owned by its
// backend; safe from several threads at once.
#ifndef KAON_KERNELS_GEMM_AMX_GEMM_H_
#define KAON_KERNELS_GEMM_AMX_GEMM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/gemm/gemm.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

class AmxGemm final : public Gemm {
 public:
  // Products that the tiles sum up in fp32 at most; longer sums are added in float64. Each block of
  // 32 adds one rounding to a sum, so that products of one sign stay within 1024 * 2^-24 = 6e-5; a
  // bf16 value is rounded by 4e-3.
  static constexpr int64_t kLongestSum = 32768;

  // HasAmx() holds (CHECK). `pool` outlives it; `fp32` may spread its products over it too.
  AmxGemm(std::unique_ptr<Gemm> fp32, ThreadPool& pool);

  // Bytes of the sums that one thread keeps for this product.
  static int64_t SumsBytes(const MatrixProduct& product);

  absl::string_view name() const override { return "amx"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override;
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override;

  int64_t StoredElements(int64_t rows, int64_t cols) const override;
  int64_t StoredIndex(int64_t cols, int64_t row, int64_t col) const override;
  void StoreTile(const TilePlace& place, const FloatTile& from, StoredMatrix& to) const override;
  void LoadTile(const TilePlace& place, const StoredMatrix& from, FloatTile& to) const override;
  void MultiplyStored(const MatrixProduct& product, const StoredOperands& operands,
                      StoredMatrix& to, ProductScratch& scratch) override;

 private:
  const std::unique_ptr<Gemm> fp32_;
  ThreadPool& pool_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_AMX_GEMM_H_
