// Gemm on AMX tiles, written for Kaon. A matrix is stored in the blocks of blocked_matrix.h. The
// right operand is packed for the tiles once per product. A result is rounded, and mirrored if
// symmetric, while it is in the first-level cache. Another Gemm computes fp32 products. The backend
// owns it; several threads may use it concurrently.
#ifndef KAON_KERNELS_GEMM_AMX_GEMM_H_
#define KAON_KERNELS_GEMM_AMX_GEMM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace kaon::kernels {

class AmxGemm final : public Gemm {
 public:
  // Maximum number of products that the tiles sum up in fp32; longer sums are added in float64.
  // Each block of 32 adds one rounding to a sum. So products of one sign stay within 1024 * 2^-24 =
  // 6e-5; rounding to bf16 costs 4e-3.
  static constexpr int64_t kLongestSum = 32768;

  // HasAmx() must hold (CHECK). `pool` must outlive this; `fp32` may use it too.
  AmxGemm(std::unique_ptr<Gemm> fp32, ThreadPool& pool);

  // Returns the bytes of the sums that one thread keeps for this product.
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
