#include <glog/logging.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/on_host/host_stream.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace {

float Load(NsDType dtype, const void* from, int64_t i) {
  switch (dtype) {
    case NsDType::kFloat32:
      return static_cast<const float*>(from)[i];
    case NsDType::kBFloat16:
      return BFloat16ToFloat(static_cast<const uint16_t*>(from)[i]);
    case NsDType::kFloat16:
      break;
  }
  return Float16ToFloat(static_cast<const uint16_t*>(from)[i]);
}

void Store(NsDType dtype, float value, void* to, int64_t i) {
  switch (dtype) {
    case NsDType::kFloat32:
      static_cast<float*>(to)[i] = value;
      return;
    case NsDType::kBFloat16:
      static_cast<uint16_t*>(to)[i] = FloatToBFloat16(value);
      return;
    case NsDType::kFloat16:
      static_cast<uint16_t*>(to)[i] = FloatToFloat16(value);
      return;
  }
}

// Returns op(B), row-major (inner, cols).
std::vector<float> Widened(const BatchedProduct& p, const void* b) {
  std::vector<float> wide(p.inner * p.cols);
  for (int64_t k = 0; k < p.inner; ++k) {
    for (int64_t j = 0; j < p.cols; ++j) {
      const int64_t at = p.transpose_b ? j * p.b.pitch + k : k * p.b.pitch + j;
      wide[k * p.cols + j] = Load(p.dtype, b, at);
    }
  }
  return wide;
}

void MultiplyOne(const BatchedProduct& p, float alpha, float beta, const ProductOperands& x) {
  const std::vector<float> b = Widened(p, x.b);
  std::vector<float> sums(p.cols);
  for (int64_t i = 0; i < p.rows; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t k = 0; k < p.inner; ++k) {
      const float a = Load(p.dtype, x.a, i * p.a.pitch + k);
      const float* const row = b.data() + k * p.cols;
      for (int64_t j = 0; j < p.cols; ++j) sums[j] += a * row[j];
    }
    for (int64_t j = 0; j < p.cols; ++j) {
      const int64_t at = i * p.d.pitch + j;
      const float added = beta == 0 ? 0 : beta * Load(p.dtype, x.c, at);
      Store(p.dtype, alpha * sums[j] + added, x.d, at);
    }
  }
}

const void* Matrix(const BatchedProduct& p, const void* base, int64_t stride, int64_t i) {
  if (base == nullptr) return nullptr;
  if (p.by_address) return static_cast<const void* const*>(base)[i];
  return static_cast<const std::byte*>(base) + i * stride * ElementBytes(p.dtype);
}

class ProductsOnHost final : public Products {
 public:
  absl::Status Find(const BatchedProduct&) override { return absl::OkStatus(); }

  void Multiply(const ProductStream& on, const BatchedProduct& product, float alpha, float beta,
                const ProductOperands& operands) override {
    on_host::Enqueue(on.stream, [=](uint64_t) {
      for (int64_t i = 0; i < product.batch; ++i) {
        MultiplyOne(product, alpha, beta,
                    {Matrix(product, operands.a, product.a.stride, i),
                     Matrix(product, operands.b, product.b.stride, i),
                     beta == 0 ? nullptr : Matrix(product, operands.c, product.d.stride, i),
                     const_cast<void*>(Matrix(product, operands.d, product.d.stride, i))});
      }
    });
  }

  std::string library() const override { return "host loops"; }
  std::string Algorithms() const override { return library() + "\n"; }
  std::string TriangleSupport() const override { return "none: products on the host"; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(const Device&) {
  return std::make_unique<ProductsOnHost>();
}

}  // namespace kaon::kernels::cuda
