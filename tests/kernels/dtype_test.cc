#include "kernels/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/float_bits.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

struct Format {
  DType dtype;
  int significant_bits;
  int min_exponent;
  double largest;
};

// Significant bits with the implied one, exponent of the smallest normal.
constexpr Format kFormats[] = {{DType::kBFloat16, 8, -126, 0x1.fep127},
                               {DType::kFloat16, 11, -14, 65504.0}};

// Rounds by definition, in double, in which every value and half-way point is exact.
double NearestIn(const Format& format, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int ulp = std::max(exponent - 1, format.min_exponent) - (format.significant_bits - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -ulp)), ulp);
  return std::abs(rounded) > format.largest ? std::copysign(HUGE_VAL, x) : rounded;
}

float FromBits(DType dtype, uint16_t bits) {
  float x = 0;
  ToFloat(dtype, reinterpret_cast<const std::byte*>(&bits), absl::MakeSpan(&x, 1));
  return x;
}

uint16_t ToBits(DType dtype, float x) {
  uint16_t bits = 0;
  FromFloat(dtype, {x}, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kFloat32), 4u);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2u);
  EXPECT_EQ(SizeOf(DType::kFloat16), 2u);
  EXPECT_EQ(NameOf(DType::kFloat32), "float32");
  EXPECT_EQ(NameOf(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(NameOf(DType::kFloat16), "float16");
}

TEST(DTypeTest, EverySixteenBitPatternComesBack) {
  for (const Format& format : kFormats) {
    for (int pattern = 0; pattern < 65536; ++pattern) {
      const float x = FromBits(format.dtype, static_cast<uint16_t>(pattern));
      const uint16_t back = ToBits(format.dtype, x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(FromBits(format.dtype, back))) << pattern;
      } else {
        ASSERT_EQ(back, pattern);
      }
    }
  }
}

TEST(DTypeTest, EveryFloat16HasItsDefinedValue) {
  for (int pattern = 0; pattern < 65536; ++pattern) {
    const int exponent = pattern >> 10 & 31;
    const int fraction = pattern & 1023;
    const double sign = pattern >> 15 ? -1 : 1;
    const float x = FromBits(DType::kFloat16, static_cast<uint16_t>(pattern));
    if (exponent == 31) {
      ASSERT_EQ(std::isinf(x), fraction == 0) << pattern;
      ASSERT_EQ(std::isnan(x), fraction != 0) << pattern;
    } else {
      const double value =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(x, sign * value) << pattern;
    }
  }
}

TEST(DTypeTest, RoundsToNearestTiesToEvenOverTheWholeRange) {
  for (const Format& format : kFormats) {
    // Steps of a prime number of ulps visit every exponent, and its neighbours are the ties.
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += 7919) {
      for (const uint32_t at : {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits) & ~0xfffu,
                                static_cast<uint32_t>(bits) & ~0x7fffu}) {
        const float x = FloatOf(at);
        ASSERT_EQ(RoundTo(format.dtype, x), NearestIn(format, x)) << NameOf(format.dtype) << x;
        ASSERT_EQ(RoundTo(format.dtype, -x), NearestIn(format, -x)) << NameOf(format.dtype) << -x;
      }
    }
  }
}

TEST(DTypeTest, OverflowBecomesInfinityFromTheHalfWayPointOn) {
  EXPECT_EQ(RoundTo(DType::kFloat16, 65519.996f), 65504.0f);
  EXPECT_EQ(RoundTo(DType::kFloat16, 65520.0f), HUGE_VALF);
  EXPECT_EQ(RoundTo(DType::kFloat16, -1e30f), -HUGE_VALF);
  EXPECT_EQ(RoundTo(DType::kBFloat16, std::numeric_limits<float>::max()), HUGE_VALF);
  EXPECT_EQ(RoundTo(DType::kBFloat16, -HUGE_VALF), -HUGE_VALF);
}

TEST(DTypeTest, CountsTheInfinitiesOfEveryType) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {infinity, -infinity, nan, 0, -1, 70000, 3.4e38f};
  for (const auto& [dtype, expected] :
       {std::pair{DType::kFloat32, 2u}, {DType::kBFloat16, 3u}, {DType::kFloat16, 4u}}) {
    std::vector<std::byte> bytes(values.size() * SizeOf(dtype) + 1);
    FromFloat(dtype, values, bytes.data() + 1);
    EXPECT_EQ(CountInfinite(dtype, bytes.data() + 1, values.size()), expected) << NameOf(dtype);
  }
}

TEST(DTypeTest, NanStaysNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0xff801000u}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      EXPECT_TRUE(std::isnan(RoundTo(dtype, FloatOf(bits)))) << NameOf(dtype) << bits;
    }
  }
}

TEST(DTypeTest, SpansConvertElementByElementAtAnyAlignment) {
  const std::vector<float> in = reference::GaussianVector(131, 1);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::vector<std::byte> bytes(1 + in.size() * SizeOf(dtype));
    FromFloat(dtype, in, bytes.data() + 1);
    std::vector<float> out(in.size());
    ToFloat(dtype, bytes.data() + 1, absl::MakeSpan(out));
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], RoundTo(dtype, in[i])) << i;
  }
}

TEST(DTypeTest, EmptySpansAreAllowed) {
  ToFloat(DType::kFloat32, nullptr, {});
  FromFloat(DType::kBFloat16, {}, nullptr);
}

}  // namespace
}  // namespace kaon::kernels
