// Element types of tensors in memory and the bit-exact conversions between them.
// Pure functions; any thread. Rounding is to nearest, ties to even; NaN stays NaN, overflow becomes
// infinity.
#ifndef KAON_KERNELS_DTYPE_H_
#define KAON_KERNELS_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kaon::kernels {

// Values equal those of kaon.v1.DType and of kaon::DType.
enum class DType : uint8_t { kFloat32 = 1, kBFloat16 = 2, kFloat16 = 3 };

// Returns the bytes per element.
size_t SizeOf(DType dtype);

// Returns "float32", "bfloat16" or "float16".
absl::string_view NameOf(DType dtype);

// out[i] <- fp32 value of element i of `src` (little-endian, unaligned allowed).
void ToFloat(DType dtype, const std::byte* src, absl::Span<float> out);

// `dst` <- rounding of `in` to nearest even. `dst` has in.size() * SizeOf(dtype) bytes and may be
// unaligned.
void FromFloat(DType dtype, absl::Span<const float> in, std::byte* dst);

// Returns how many of the `n` elements at `values` (unaligned allowed) are infinite. After
// FromFloat of finite values, these are the ones beyond the largest number of `dtype`.
size_t CountInfinite(DType dtype, const std::byte* values, size_t n);

// Returns the value that `x` has after being stored as `dtype`.
float RoundTo(DType dtype, float x);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_DTYPE_H_
