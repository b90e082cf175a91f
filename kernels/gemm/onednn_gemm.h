// Gemm by oneDNN. fp32 products call its sgemm; bf16 products run matmul primitives, kept per shape
// because making one generates code. A machine whose oneDNN has no bf16 product widens the operands
// instead, which is exact. Owned by its backend; safe from several threads at once.
#ifndef KAON_KERNELS_GEMM_ONEDNN_GEMM_H_
#define KAON_KERNELS_GEMM_ONEDNN_GEMM_H_

#include <cstddef>
#include <list>
#include <memory>

#include "kernels/gemm/gemm.h"
#include "kernels/mutex.h"

namespace kaon::kernels {

class OneDnnGemm final : public Gemm {
 public:
  // Primitives kept; the least recently used goes first.
  static constexpr size_t kMaxCachedPrimitives = 256;

  enum class BFloat16Products {
    kWhereNative,
    // Also where the library emulates them, which takes AVX-512: lets tests reach the primitives on
    // more machines.
    kWherePossible,
  };

  explicit OneDnnGemm(BFloat16Products products = BFloat16Products::kWhereNative);
  ~OneDnnGemm() override;

  absl::string_view name() const override { return "onednn"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override;
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override;

  // Else bf16 products widen.
  bool has_primitives() const { return use_primitives_; }
  size_t num_cached_primitives() const;

 private:
  struct Engine;
  struct BFloat16Primitive;

  // Shared with calls that run it while the cache drops it.
  std::shared_ptr<BFloat16Primitive> FindOrMake(const MatrixProduct& product);
  // Null when there is none; moves it to the front.
  std::shared_ptr<BFloat16Primitive> FindLocked(const MatrixProduct& product)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool use_primitives_;
  const std::unique_ptr<Engine> engine_;

  mutable Mutex mu_;
  // Most recently used first.
  std::list<std::shared_ptr<BFloat16Primitive>> cache_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_ONEDNN_GEMM_H_
