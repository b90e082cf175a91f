#include "kernels/cuda/products/long_product.h"

#include <glog/logging.h>

#include <algorithm>

#include "kernels/cuda/products/piece_sums.h"

namespace kaon::kernels::cuda {
namespace {

enum class Order { kWhole, kSideBySide, kOneAfterAnother };

struct Cut {
  Order order = Order::kWhole;
  // Inner dimension of every piece but the last.
  int64_t longest = 0;

  explicit Cut(const BatchedProduct& product) {
    if (product.dtype != NsDType::kFloat32 || product.inner <= kLongestPiece) return;
    const int64_t pieces = (product.inner + kLongestPiece - 1) / kLongestPiece;
    const uint64_t bytes = pieces * product.d.stride * ElementBytes(product.dtype);
    // The library counts the products of a batch in 16 bits.
    if (bytes <= ProductStream::kFormBytes && pieces <= 65535) {
      order = Order::kSideBySide;
      longest = kLongestPiece;
    } else if (product.inner > kLongestPieceOfLarge) {
      order = Order::kOneAfterAnother;
      longest = kLongestPieceOfLarge;
    }
  }
};

// The pieces of one matrix but the last, as a batch.
BatchedProduct AllButLast(BatchedProduct product, int64_t longest) {
  product.batch = (product.inner - 1) / longest;
  product.inner = longest;
  product.a.stride = longest;
  product.b.stride = product.transpose_b ? longest : longest * product.b.pitch;
  return product;
}

// The piece of a batch, or of one matrix, that begins at inner index `k`.
BatchedProduct PieceAt(BatchedProduct product, int64_t k, int64_t longest, int64_t batch) {
  product.inner = std::min(longest, product.inner - k);
  product.batch = batch;
  return product;
}

int64_t LastOf(const BatchedProduct& product, int64_t longest) {
  return (product.inner - 1) / longest * longest;
}

template <typename Byte>
Byte* Matrix(Byte* first, const BatchLayout& layout, int64_t i) {
  return first == nullptr ? nullptr : first + i * layout.stride;
}

// Returns the operands of a product from inner index `k` on; C and D are the same.
ProductOperands From(const BatchedProduct& product, const ProductOperands& operands, int64_t k) {
  const int64_t k_in_b = product.transpose_b ? k : k * product.b.pitch;
  return {static_cast<const float*>(operands.a) + k, static_cast<const float*>(operands.b) + k_in_b,
          operands.c, operands.d};
}

// Returns the operands of matrix i of the batch.
ProductOperands OperandsOf(const BatchedProduct& product, const ProductOperands& operands,
                           int64_t i) {
  return {Matrix(static_cast<const float*>(operands.a), product.a, i),
          Matrix(static_cast<const float*>(operands.b), product.b, i),
          Matrix(static_cast<const float*>(operands.c), product.d, i),
          Matrix(static_cast<float*>(operands.d), product.d, i)};
}

void MultiplySideBySide(Products& products, const ProductStream& on, const BatchedProduct& product,
                        float alpha, float beta, const ProductOperands& operands) {
  float* const results = static_cast<float*>(on.form_scratch());
  const BatchedProduct first = AllButLast(product, kLongestPiece);
  const int64_t k = LastOf(product, kLongestPiece);
  const BatchedProduct last = PieceAt(product, k, kLongestPiece, 1);
  for (int64_t i = 0; i < product.batch; ++i) {
    ProductOperands x = OperandsOf(product, operands, i);
    products.Multiply(on, first, 1, 0, {x.a, x.b, nullptr, results});
    const ProductOperands end = From(product, x, k);
    products.Multiply(on, last, 1, 0,
                      {end.a, end.b, nullptr, Matrix(results, product.d, first.batch)});
    AddPieces(on.stream,
              {.rows = product.rows,
               .cols = product.cols,
               .layout = product.d,
               .count = first.batch + 1,
               .alpha = alpha,
               .beta = beta},
              results, static_cast<const float*>(x.c), static_cast<float*>(x.d));
  }
}

}  // namespace

absl::Status FindInPieces(Products& products, const BatchedProduct& product) {
  CHECK(!product.by_address);
  const Cut cut(product);
  if (cut.order == Order::kWhole) return products.Find(product);
  const bool side_by_side = cut.order == Order::kSideBySide;
  const int64_t batch = side_by_side ? 1 : product.batch;
  absl::Status status = products.Find(side_by_side ? AllButLast(product, cut.longest)
                                                   : PieceAt(product, 0, cut.longest, batch));
  status.Update(products.Find(PieceAt(product, LastOf(product, cut.longest), cut.longest, batch)));
  return status;
}

void MultiplyInPieces(Products& products, const ProductStream& on, const BatchedProduct& product,
                      float alpha, float beta, const ProductOperands& operands) {
  const Cut cut(product);
  switch (cut.order) {
    case Order::kWhole:
      return products.Multiply(on, product, alpha, beta, operands);
    case Order::kSideBySide:
      return MultiplySideBySide(products, on, product, alpha, beta, operands);
    case Order::kOneAfterAnother:
      break;
  }
  ProductOperands x = operands;
  for (int64_t k = 0; k < product.inner; k += cut.longest) {
    products.Multiply(on, PieceAt(product, k, cut.longest, product.batch), alpha, k == 0 ? beta : 1,
                      From(product, x, k));
    x.c = x.d;
  }
}

}  // namespace kaon::kernels::cuda
