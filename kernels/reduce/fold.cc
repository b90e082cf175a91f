#include "kernels/reduce/fold.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "kernels/accumulation.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/fold_element.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

static_assert(kFoldBlock == kFoldBlockElements);

// Adds neighbours at half the distance until one is left.
template <int n>
KAON_HOST_DEVICE float SumOf(float* lanes) {
  if constexpr (n == 1) {
    return lanes[0];
  } else {
    for (int l = 0; l < n / 2; ++l) lanes[l] += lanes[l + n / 2];
    return SumOf<n / 2>(lanes);
  }
}

// Returns the sum of the squares; not finite if an element is not. fp32 is nearly free, and its
// rounding does not matter to the readers of the sum.
template <DType dtype, bool first>
struct FoldBlock {
  static constexpr int kLanes = kFoldLanes;

  // Restrict-qualified, so that the lanes stay in registers.
  KAON_HOST_DEVICE static float Run(const std::byte* __restrict src, float weight,
                                    float* __restrict acc, int64_t n) {
    float lane[kLanes] = {};
    const int64_t whole = n - n % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        const float g = LoadAs<dtype>(src, i + l);
        acc[i + l] = Folded<first>(weight, g, acc[i + l]);
        lane[l] = std::fma(g, g, lane[l]);
      }
    }
    for (int64_t i = whole; i < n; ++i) {
      const float g = LoadAs<dtype>(src, i);
      acc[i] = Folded<first>(weight, g, acc[i]);
      lane[i - whole] = std::fma(g, g, lane[i - whole]);
    }
    return SumOf<kLanes>(lane);
  }
};

// Same sum in fp64: no square of an fp32 value overflows there, or is lost.
template <DType dtype>
struct WideSquares {
  KAON_HOST_DEVICE static double Run(const std::byte* src, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double g = LoadAs<dtype>(src, i);
      sum += g * g;
    }
    return sum;
  }
};

template <DType dtype>
struct AnyNonZero {
  KAON_HOST_DEVICE static bool Run(const std::byte* src, int64_t n) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; ++i) bits |= BitsOf(LoadAs<dtype>(src, i)) << 1;
    return bits != 0;
  }
};

// The first write of a sum bypasses the caches: later additions and the division come when the sum
// has left them. Small parameters of several workers lose by this, but less than the others gain.
template <DType dtype, bool first>
float FoldOneBlock(const std::byte* block, float weight, float* acc, int64_t count) {
  if constexpr (!first) {
    return RunVectorized<FoldBlock<dtype, false>>(block, weight, acc, count);
  } else {
    alignas(64) float begun[kFoldBlockElements];
    const float squares = RunVectorized<FoldBlock<dtype, true>>(block, weight, begun, count);
    StreamTo(begun, count * sizeof(float), acc);
    return squares;
  }
}

template <DType dtype, bool first>
int64_t FoldAs(const std::byte* src, float weight, absl::Span<float> acc, double* sum_squares) {
  const int64_t n = static_cast<int64_t>(acc.size());
  int64_t non_finite = -1;
  for (int64_t begin = 0; begin < n; begin += kFoldBlockElements) {
    const int64_t count = std::min(kFoldBlockElements, n - begin);
    const std::byte* const block = src + begin * static_cast<int64_t>(SizeOf(dtype));
    const float squares = FoldOneBlock<dtype, first>(block, weight, acc.data() + begin, count);
    if (AreSquaresExactEnough(squares)) {
      *sum_squares += squares;
    } else if (RunVectorized<AnyNonZero<dtype>>(block, count)) {
      *sum_squares += RunVectorized<WideSquares<dtype>>(block, count);
      for (int64_t i = 0; non_finite < 0 && i < count; ++i) {
        if (IsNonFinite(LoadAs<dtype>(block, i))) non_finite = begin + i;
      }
    }
  }
  if (first) EndStreaming();
  return non_finite;
}

}  // namespace

int64_t FoldElements(DType dtype, const std::byte* src, float weight, bool first,
                     absl::Span<float> acc, double* sum_squares) {
  switch (dtype) {
    case DType::kFloat32:
      return first ? FoldAs<DType::kFloat32, true>(src, weight, acc, sum_squares)
                   : FoldAs<DType::kFloat32, false>(src, weight, acc, sum_squares);
    case DType::kBFloat16:
      return first ? FoldAs<DType::kBFloat16, true>(src, weight, acc, sum_squares)
                   : FoldAs<DType::kBFloat16, false>(src, weight, acc, sum_squares);
    case DType::kFloat16:
      return first ? FoldAs<DType::kFloat16, true>(src, weight, acc, sum_squares)
                   : FoldAs<DType::kFloat16, false>(src, weight, acc, sum_squares);
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

}  // namespace kaon::kernels
