// Reference Gemm in plain C++. Each element of C is a sum over the inner index in ascending order,
// with fused multiply-adds, in blocks of 256. Tests compare the libraries with it, and sanitizers
// can check it. Stateless; any thread.
#ifndef KAON_KERNELS_GEMM_REFERENCE_GEMM_H_
#define KAON_KERNELS_GEMM_REFERENCE_GEMM_H_

#include "kernels/gemm/gemm.h"

namespace kaon::kernels {

class ReferenceGemm final : public Gemm {
 public:
  absl::string_view name() const override { return "reference"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override;
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_REFERENCE_GEMM_H_
