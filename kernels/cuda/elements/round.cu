#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/round.h"
#include "kernels/cuda/launch.h"

namespace kaon::kernels::cuda {
namespace {

// Elements of one write of 16 bytes.
struct alignas(16) Eight {
  uint16_t of[8];
};

struct RoundArguments {
  const float* values;
  uint16_t* to;
  int64_t num_elements;
  bool to_bfloat16;
  bool vector;
};

KAON_DEVICE uint16_t Rounded(const RoundArguments& arguments, float x) {
  return arguments.to_bfloat16 ? FloatToBFloat16(x) : FloatToFloat16(x);
}

__global__ void __launch_bounds__(kThreads) RoundKernel(const RoundArguments arguments) {
  const int64_t num_elements = arguments.num_elements;
  for (int64_t turn = int64_t{blockIdx.x} * 2 * kTurn; turn < num_elements;
       turn += int64_t{gridDim.x} * 2 * kTurn) {
    const int64_t first = turn + 8 * threadIdx.x;
    if (arguments.vector && first + 8 <= num_elements) {
      const Four<float> low = LoadFour(arguments.values + first, 4, true);
      const Four<float> high = LoadFour(arguments.values + first + 4, 4, true);
      Eight rounded;
      for (int i = 0; i < 4; ++i) {
        rounded.of[i] = Rounded(arguments, low.of[i]);
        rounded.of[4 + i] = Rounded(arguments, high.of[i]);
      }
      *reinterpret_cast<Eight*>(arguments.to + first) = rounded;
      continue;
    }
    for (int64_t i = first; i < first + 8 && i < num_elements; ++i) {
      arguments.to[i] = Rounded(arguments, arguments.values[i]);
    }
  }
}

}  // namespace

void RoundElements(Stream& stream, DType dtype, const float* values, int64_t num_elements,
                   void* to) {
  const RoundArguments arguments = {values, static_cast<uint16_t*>(to), num_elements,
                                    dtype == DType::kBFloat16,
                                    IsVectorAligned(values) && IsVectorAligned(to)};
  Launch(stream, {BlocksFor((num_elements + 1) / 2), kThreads}, RoundKernel, arguments);
}

}  // namespace kaon::kernels::cuda
