#include "kernels/dtype.h"

#include <glog/logging.h>

#include <cstring>

#include "kernels/expand.h"
#include "kernels/float_bits.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

struct RoundToBFloat16 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* dst, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t x = FloatToBFloat16(in[i]);
      memcpy(dst + 2 * i, &x, sizeof(x));
    }
  }
};

struct RoundToFloat16 {
  KAON_HOST_DEVICE static void Run(const float* in, std::byte* dst, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t x = FloatToFloat16(in[i]);
      memcpy(dst + 2 * i, &x, sizeof(x));
    }
  }
};

struct CountEqualMagnitudes {
  template <typename Bits>
  KAON_HOST_DEVICE static size_t Count(const std::byte* values, size_t n, Bits magnitude) {
    size_t count = 0;
    for (size_t i = 0; i < n; ++i) {
      Bits x;
      memcpy(&x, values + sizeof(x) * i, sizeof(x));
      count += static_cast<Bits>(x << 1) == static_cast<Bits>(magnitude << 1) ? 1 : 0;
    }
    return count;
  }
  KAON_HOST_DEVICE static size_t Run(const std::byte* values, size_t n, uint16_t magnitude) {
    return Count<uint16_t>(values, n, magnitude);
  }
  KAON_HOST_DEVICE static size_t Run(const std::byte* values, size_t n, uint32_t magnitude) {
    return Count<uint32_t>(values, n, magnitude);
  }
};

}  // namespace

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

absl::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

void ToFloat(DType dtype, const std::byte* src, absl::Span<float> out) {
  if (out.empty()) return;
  switch (dtype) {
    case DType::kFloat32:
      memcpy(out.data(), src, out.size() * sizeof(float));
      return;
    case DType::kBFloat16:
      RunVectorized<ExpandBFloat16>(src, out.data(), out.size());
      return;
    case DType::kFloat16:
      RunVectorized<ExpandFloat16>(src, out.data(), out.size());
      return;
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

void FromFloat(DType dtype, absl::Span<const float> in, std::byte* dst) {
  if (in.empty()) return;
  switch (dtype) {
    case DType::kFloat32:
      memcpy(dst, in.data(), in.size() * sizeof(float));
      return;
    case DType::kBFloat16:
      RunVectorized<RoundToBFloat16>(in.data(), dst, in.size());
      return;
    case DType::kFloat16:
      RunVectorized<RoundToFloat16>(in.data(), dst, in.size());
      return;
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

size_t CountInfinite(DType dtype, const std::byte* values, size_t n) {
  switch (dtype) {
    case DType::kFloat32:
      return RunVectorized<CountEqualMagnitudes>(values, n, uint32_t{0x7f800000});
    case DType::kBFloat16:
      return RunVectorized<CountEqualMagnitudes>(values, n, uint16_t{0x7f80});
    case DType::kFloat16:
      return RunVectorized<CountEqualMagnitudes>(values, n, uint16_t{0x7c00});
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

float RoundTo(DType dtype, float x) {
  switch (dtype) {
    case DType::kFloat32:
      return x;
    case DType::kBFloat16:
      return BFloat16ToFloat(FloatToBFloat16(x));
    case DType::kFloat16:
      return Float16ToFloat(FloatToFloat16(x));
  }
  LOG(FATAL) << "dtype " << static_cast<int>(dtype) << " is none of float32, bfloat16, float16";
}

}  // namespace kaon::kernels
