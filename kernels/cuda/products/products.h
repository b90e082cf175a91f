// Matrix products of one device. Two implementations link against this header: lt_gemm.cc on
// cuBLASLt, and on_host/products_on_host.cc, which multiplies on the host. Matrices are row-major.
// Sums are fp32, and an element is rounded once. Bits depend on the product and on what
// Algorithms() says, never on streams or timing. Any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
#define KAON_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels::cuda {

inline constexpr int64_t ElementBytes(NsDType dtype) { return dtype == NsDType::kFloat32 ? 4 : 2; }

// Layout of a batch of equal matrices, in elements.
struct BatchLayout {
  // Elements from one row to the next.
  int64_t pitch = 0;
  // Elements from one matrix to the next. Unused if addresses come in arrays.
  int64_t stride = 0;

  auto operator<=>(const BatchLayout&) const = default;
};

// Returns the layout of (rows, cols) matrices in one piece of memory: rows start at multiples of 8
// elements, matrices at multiples of 256 bytes.
inline BatchLayout LayoutOf(NsDType dtype, int64_t rows, int64_t cols) {
  const int64_t pitch = (cols + 7) / 8 * 8;
  const int64_t matrix = 256 / ElementBytes(dtype);
  return {pitch, (rows * pitch + matrix - 1) / matrix * matrix};
}

// D <- alpha A op(B) + beta C for every matrix of a batch: A (rows, inner), op(B) (inner, cols), C
// and D (rows, cols).
struct BatchedProduct {
  NsDType dtype = NsDType::kBFloat16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t inner = 0;
  // B is stored as (cols, inner).
  bool transpose_b = false;
  int64_t batch = 1;
  BatchLayout a = {};
  BatchLayout b = {};
  // Layout of C and D.
  BatchLayout d = {};
  // The operands are arrays in device memory with the address of each matrix.
  bool by_address = false;

  auto operator<=>(const BatchedProduct&) const = default;
};

// Device memory. All matrices are 256-byte aligned. D overlaps neither A nor B. C is read only if
// beta != 0; it may be D.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
};

// A stream, and device memory that only its products use.
struct ProductStream {
  // Scratch of the library, then of symmetric forms and of pieces (long_product.h).
  static constexpr uint64_t kLibraryBytes = uint64_t{32} << 20;
  static constexpr uint64_t kFormBytes = uint64_t{32} << 20;
  static constexpr uint64_t kScratchBytes = kLibraryBytes + kFormBytes;

  Stream& stream;
  // kScratchBytes, 256-byte aligned.
  std::byte* scratch;

  void* library_scratch() const { return scratch; }
  void* form_scratch() const { return scratch + kLibraryBytes; }
};

// Returns the size of the batch that algorithms and forms of products with results (rows, cols) are
// chosen for. It does not depend on the batch at hand, because the bits of a matrix must not depend
// on the others of its batch. So many matrices occupy a large device once.
inline int64_t TypicalBatch(int64_t rows, int64_t cols) {
  constexpr int64_t kTile = 128;
  constexpr int64_t kTilesAtOnce = 264;
  const int64_t tiles = ((rows + kTile - 1) / kTile) * ((cols + kTile - 1) / kTile);
  return std::max<int64_t>(1, kTilesAtOnce / std::max<int64_t>(1, tiles));
}

class Products {
 public:
  virtual ~Products() = default;

  // The device outlives the result. FAILED_PRECONDITION if the library refuses it.
  static absl::StatusOr<std::unique_ptr<Products>> Create(const Device& device);

  // Chooses the algorithm of a product, once; it does not depend on the size of the batch. Not
  // between BeginCapture and EndCapture. UNIMPLEMENTED if the library has none, with its reason.
  virtual absl::Status Find(const BatchedProduct& product) = 0;
  // Queues a product that Find has accepted (CHECK).
  virtual void Multiply(const ProductStream& on, const BatchedProduct& product, float alpha,
                        float beta, const ProductOperands& operands) = 0;
  // Returns the library and its version, such as "cublasLt 13.1.0".
  virtual std::string library() const = 0;
  // Returns the library, the number of multiprocessors, and a line per kind of product that Find
  // has accepted, with the algorithm's bytes.
  virtual std::string Algorithms() const = 0;
  // Returns how many of the library's bf16 algorithms can compute half of a symmetric product.
  virtual std::string TriangleSupport() const = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
