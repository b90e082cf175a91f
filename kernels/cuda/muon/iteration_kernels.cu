#include "kernels/cuda/elements/stored_element.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/muon/iteration_kernels.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kThreads = 256;

int64_t BlocksFor(int64_t threads) { return (threads + kThreads - 1) / kThreads; }

template <typename Bits>
struct ScaleArguments {
  const ElementVector<Bits>* from;
  ElementVector<Bits>* to;
  int64_t num_vectors;
  float factor;
};

template <NsDType dtype>
__global__ void ScaleKernel(ScaleArguments<typename StoredElement<dtype>::Bits> x) {
  using Element = StoredElement<dtype>;
  using Vector = ElementVector<typename Element::Bits>;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= x.num_vectors) return;
  Vector vector = x.from[i];
  for (int j = 0; j < Vector::kSize; ++j) {
    vector.values[j] = Element::Round(x.factor * Element::Load(vector.values[j]));
  }
  x.to[i] = vector;
}

template <typename Bits>
struct DiagonalArguments {
  Bits* x;
  int64_t n;
  int64_t pitch;
  int64_t stride;
  int64_t count;
  float value;
};

template <NsDType dtype>
__global__ void DiagonalKernel(DiagonalArguments<typename StoredElement<dtype>::Bits> x) {
  using Element = StoredElement<dtype>;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= x.count) return;
  const int64_t row = i % x.n;
  typename Element::Bits& element = x.x[i / x.n * x.stride + row * x.pitch + row];
  element = Element::Round(Element::Load(element) + x.value);
}

}  // namespace

void Scale(Stream& stream, const SquareBatch& squares, const void* from, float factor, void* to) {
  const int64_t stride = LayoutOf(squares.dtype, squares.n, squares.n).stride;
  ForDType(squares.dtype, [&]<NsDType dtype>() {
    using Bits = typename StoredElement<dtype>::Bits;
    const int64_t count = squares.batch * stride / ElementVector<Bits>::kSize;
    const ScaleArguments<Bits> arguments = {static_cast<const ElementVector<Bits>*>(from),
                                            static_cast<ElementVector<Bits>*>(to), count, factor};
    Launch(stream, {.blocks = BlocksFor(count), .threads = kThreads}, ScaleKernel<dtype>,
           arguments);
  });
}

void AddToDiagonal(Stream& stream, const SquareBatch& squares, float value, void* x) {
  const BatchLayout layout = LayoutOf(squares.dtype, squares.n, squares.n);
  const int64_t batch = Has(SeededBug::kDiagonalOfFirstOnly) ? 1 : squares.batch;
  ForDType(squares.dtype, [&]<NsDType dtype>() {
    using Bits = typename StoredElement<dtype>::Bits;
    const int64_t count = batch * squares.n;
    const DiagonalArguments<Bits> arguments = {static_cast<Bits*>(x), squares.n, layout.pitch,
                                               layout.stride,         count,     value};
    Launch(stream, {.blocks = BlocksFor(count), .threads = kThreads}, DiagonalKernel<dtype>,
           arguments);
  });
}

}  // namespace kaon::kernels::cuda
