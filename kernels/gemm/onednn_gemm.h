// Gemm by oneDNN. fp32 products call its sgemm. bf16 products run matmul primitives, cached per
// shape because creating one generates code. If oneDNN has no bf16 product on this machine, the
// operands are widened instead, which is exact. The backend owns it; several threads may use it
// concurrently.
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
  // Maximum number of cached primitives; the least recently used one is dropped first.
  static constexpr size_t kMaxCachedPrimitives = 256;

  enum class BFloat16Products {
    kWhereNative,
    // Also if the library emulates them, which needs AVX-512: lets tests run the primitives on more
    // machines.
    kWherePossible,
  };

  explicit OneDnnGemm(BFloat16Products products = BFloat16Products::kWhereNative);
  ~OneDnnGemm() override;

  absl::string_view name() const override { return "onednn"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override;
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override;

  // Returns false if bf16 products are widened.
  bool has_primitives() const { return use_primitives_; }
  size_t num_cached_primitives() const;

 private:
  struct Engine;
  struct BFloat16Primitive;

  // Returns a primitive, shared with calls that still run it when the cache drops it.
  std::shared_ptr<BFloat16Primitive> FindOrMake(const MatrixProduct& product);
  // Returns the primitive and moves it to the front; null if there is none.
  std::shared_ptr<BFloat16Primitive> FindLocked(const MatrixProduct& product)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const bool use_primitives_;
  const std::unique_ptr<Engine> engine_;

  mutable Mutex mu_;
  // Ordered by use, the most recently used first.
  std::list<std::shared_ptr<BFloat16Primitive>> cache_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_ONEDNN_GEMM_H_
