#include "kernels/cuda/products/symmetric_forms.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/products/block_addresses.h"
#include "kernels/cuda/products/mirror.h"
#include "kernels/cuda/products/symmetric_schedule.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {
namespace {

// Blocks start at multiples of so many rows and columns, and so at multiples of 256 bytes.
constexpr int64_t kEdgeUnit = 128;
// Four blocks a side make 10 of 16 blocks, in three waves at n = 4096 on 132 multiprocessors.
constexpr int64_t kMostSide = 4;

// Divides the rows into `side` blocks of `edge` rows, then a strip that is computed whole.
struct Cut {
  int64_t edge;
  int64_t side;

  explicit Cut(int64_t n) {
    const int64_t units = (n + kMostSide * kEdgeUnit - 1) / (kMostSide * kEdgeUnit);
    edge = units * kEdgeUnit;
    side = n / edge;
  }
};

BlockTriangle TriangleOf(const SymmetricBatch& shape, const ProductOperands& operands) {
  const Cut cut(shape.n);
  return {cut.side,
          cut.edge,
          shape.batch,
          LayoutOf(shape.dtype, shape.n, shape.k),
          LayoutOf(shape.dtype, shape.n, shape.n),
          operands};
}

// The launches of our own kernel for a batch. A matrix that cuts its last wave alone cuts it in a
// batch too, so it has a launch of its own. Small matrices never cut theirs.
struct WgmmaLaunches {
  SymmetricShape shape;
  int64_t count;

  WgmmaLaunches(const SymmetricBatch& batch, int multiprocessors) {
    const DType dtype = batch.dtype == NsDType::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
    const bool cuts = TypicalBatch(batch.n, batch.n) == 1 &&
                      MakeSymmetricSchedule(batch.n, batch.k, 1, multiprocessors).parts > 1;
    shape = {batch.n, batch.k, cuts ? 1 : batch.batch, dtype, cuts};
    count = batch.batch / shape.batch;
  }
};

BatchedProduct DenseProduct(const SymmetricBatch& shape) {
  const BatchLayout factor = LayoutOf(shape.dtype, shape.n, shape.k);
  return {.dtype = shape.dtype,
          .rows = shape.n,
          .cols = shape.n,
          .inner = shape.k,
          .transpose_b = true,
          .batch = shape.batch,
          .a = factor,
          .b = factor,
          .d = LayoutOf(shape.dtype, shape.n, shape.n)};
}

BatchedProduct BlockProduct(const SymmetricBatch& shape) {
  const BlockTriangle triangle = TriangleOf(shape, {});
  BatchedProduct product = DenseProduct(shape);
  product.rows = triangle.edge;
  product.cols = triangle.edge;
  product.batch = triangle.NumBlocks();
  product.by_address = true;
  for (BatchLayout* const layout : {&product.a, &product.b, &product.d}) layout->stride = 0;
  return product;
}

BatchedProduct StripProduct(const SymmetricBatch& shape) {
  const Cut cut(shape.n);
  BatchedProduct product = DenseProduct(shape);
  product.rows = shape.n - cut.side * cut.edge;
  return product;
}

}  // namespace

absl::string_view NameOf(SymmetricForm form) {
  switch (form) {
    case SymmetricForm::kDense:
      return "dense";
    case SymmetricForm::kBlocks:
      return "blocks";
    case SymmetricForm::kWgmma:
      break;
  }
  return "wgmma";
}

bool SymmetricProducts::Supports(SymmetricForm form, const SymmetricBatch& shape) const {
  if (form == SymmetricForm::kDense) return true;
  if (form == SymmetricForm::kWgmma) {
    return ElementBytes(shape.dtype) == 2 && SymmetricProductSupported(device_.properties());
  }
  const uint64_t addresses = 4 * TriangleOf(shape, {}).NumBlocks();
  return ElementBytes(shape.dtype) == 2 && shape.n >= 2 * kEdgeUnit &&
         addresses * sizeof(void*) <= ProductStream::kFormBytes;
}

absl::Status SymmetricProducts::Find(SymmetricForm form, const SymmetricBatch& shape) {
  if (!Supports(form, shape)) {
    return absl::UnimplementedError(absl::StrCat("symmetric product of ", shape.n, "x", shape.k,
                                                 ", batch ", shape.batch, ": no form ",
                                                 NameOf(form)));
  }
  if (form == SymmetricForm::kDense) return products_.Find(DenseProduct(shape));
  if (form == SymmetricForm::kWgmma) return FindWgmma(shape);
  absl::Status status = products_.Find(BlockProduct(shape));
  const BatchedProduct strip = StripProduct(shape);
  if (status.ok() && strip.rows > 0) status = products_.Find(strip);
  return status;
}

void SymmetricProducts::Multiply(const ProductStream& on, SymmetricForm form,
                                 const SymmetricBatch& shape, float alpha, float beta,
                                 const ProductOperands& operands) {
  switch (form) {
    case SymmetricForm::kDense:
      return products_.Multiply(on, DenseProduct(shape), alpha, beta, operands);
    case SymmetricForm::kBlocks:
      return MultiplyBlocks(on, shape, alpha, beta, operands);
    case SymmetricForm::kWgmma:
      return MultiplyWgmma(on, shape, alpha, beta, operands);
  }
}

absl::Status SymmetricProducts::FindWgmma(const SymmetricBatch& shape) {
  const WgmmaLaunches launches(shape, device_.properties().multiprocessors);
  MutexLock lock(mutex_);
  if (wgmma_.count(shape) != 0) return absl::OkStatus();
  auto product = SymmetricProduct::Create(device_, launches.shape);
  if (!product.ok()) return product.status();
  if ((*product)->workspace_bytes() > ProductStream::kFormBytes) {
    return absl::UnimplementedError(absl::StrCat("symmetric product of ", shape.n, "x", shape.k,
                                                 ": its parts need ", (*product)->workspace_bytes(),
                                                 " bytes, more than ", ProductStream::kFormBytes));
  }
  wgmma_.emplace(shape, *std::move(product));
  return absl::OkStatus();
}

void SymmetricProducts::MultiplyWgmma(const ProductStream& on, const SymmetricBatch& shape,
                                      float alpha, float beta, const ProductOperands& operands) {
  const SymmetricProduct* product = nullptr;
  {
    MutexLock lock(mutex_);
    product = wgmma_.at(shape).get();
  }
  const BatchLayout factor = LayoutOf(shape.dtype, shape.n, shape.k);
  const BatchLayout square = LayoutOf(shape.dtype, shape.n, shape.n);
  const auto matrices = [&](const void* base, const BatchLayout& layout, int64_t i) {
    auto* const first = static_cast<uint16_t*>(const_cast<void*>(base));
    return SymmetricMatrices{first == nullptr ? nullptr : first + i * layout.stride, layout.pitch,
                             layout.stride};
  };
  const WgmmaLaunches launches(shape, device_.properties().multiprocessors);
  for (int64_t i = 0; i < launches.count; ++i) {
    product->Run(on.stream, {.a = matrices(operands.a, factor, i),
                             .b = matrices(operands.b, factor, i),
                             .c = matrices(operands.c, square, i),
                             .d = matrices(operands.d, square, i),
                             .alpha = alpha,
                             .beta = beta,
                             .workspace = on.form_scratch()});
  }
}

void SymmetricProducts::MultiplyBlocks(const ProductStream& on, const SymmetricBatch& shape,
                                       float alpha, float beta, const ProductOperands& operands) {
  // A product with beta = 0 has no C; D's addresses are valid, and nobody reads there.
  const void* const c = beta == 0 ? operands.d : operands.c;
  const BlockTriangle triangle = TriangleOf(shape, {operands.a, operands.b, c, operands.d});
  const int64_t count = triangle.NumBlocks();
  void** const addresses = static_cast<void**>(on.form_scratch());
  FillBlockAddresses(on.stream, triangle, addresses);
  products_.Multiply(on, BlockProduct(shape), alpha, beta,
                     {addresses, addresses + count, addresses + 2 * count, addresses + 3 * count});
  const BatchedProduct strip = StripProduct(shape);
  if (strip.rows > 0 && !Has(SeededBug::kStripMissing)) {
    const int64_t first = triangle.side * triangle.edge;
    const int64_t factor_bytes = first * strip.a.pitch * ElementBytes(shape.dtype);
    const int64_t result_bytes = first * strip.d.pitch * ElementBytes(shape.dtype);
    products_.Multiply(on, strip, alpha, beta,
                       {static_cast<const std::byte*>(operands.a) + factor_bytes, operands.b,
                        static_cast<const std::byte*>(c) + result_bytes,
                        static_cast<std::byte*>(operands.d) + result_bytes});
  }
  Mirror(on.stream, {shape.dtype, shape.n, shape.batch}, operands.d);
}

}  // namespace kaon::kernels::cuda
