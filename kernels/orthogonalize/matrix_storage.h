// How the matrices of the iteration are kept between products, one type per ns_dtype ([N6]): what
// is stored is rounded once, and every sum is fp32. Stateless; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_
#define KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/float_bits.h"
#include "kernels/gemm.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {

// Each has Matrix; Store, which rounds `wide` into a matrix of the same size and leaves `wide` with
// values of no meaning; Load, its inverse, which copies; and Multiply, which leaves the result
// wide.
struct Float32Storage {
  using Matrix = std::vector<float>;

  static void Store(std::vector<float>& wide, Matrix& to) { std::swap(wide, to); }
  static void Load(const Matrix& from, std::vector<float>& wide) { wide = from; }
  static void Multiply(Gemm& gemm, const MatrixProduct& product, const Matrix& a, const Matrix& b,
                       std::vector<float>& wide) {
    gemm.Multiply(product, a.data(), b.data(), wide.data());
  }
};

struct BFloat16Storage {
  using Matrix = std::vector<uint16_t>;

  static void Store(std::vector<float>& wide, Matrix& to) {
    FromFloat(DType::kBFloat16, wide, reinterpret_cast<std::byte*>(to.data()));
  }
  static void Load(const Matrix& from, std::vector<float>& wide) {
    ToFloat(DType::kBFloat16, reinterpret_cast<const std::byte*>(from.data()),
            absl::MakeSpan(wide));
  }
  static void Multiply(Gemm& gemm, const MatrixProduct& product, const Matrix& a, const Matrix& b,
                       std::vector<float>& wide) {
    gemm.MultiplyBFloat16(product, a.data(), b.data(), wide.data());
  }
};

// The product of two fp16 values is exact in fp32, so fp32 products of rounded values are fp16
// products summed in fp32.
struct Float16Storage : Float32Storage {
  static void Store(std::vector<float>& wide, Matrix& to) {
    RunVectorized<Round>(wide.data(), static_cast<int64_t>(wide.size()));
    std::swap(wide, to);
  }

 private:
  struct Round {
    KAON_HOST_DEVICE static void Run(float* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) x[i] = Float16ToFloat(FloatToFloat16(x[i]));
    }
  };
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_
