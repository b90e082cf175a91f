#include "kernels/state_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

constexpr StateDType kDTypes[] = {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8,
                                  StateDType::kSqrtUInt8};

std::vector<std::byte> Encoded(StateDType dtype, const std::vector<float>& in) {
  std::vector<std::byte> bytes(StateBytes(dtype, in.size()), std::byte{0xff});
  EncodeState(dtype, in, 0, absl::MakeSpan(bytes));
  return bytes;
}

std::vector<float> Decoded(StateDType dtype, const std::vector<std::byte>& bytes, size_t n) {
  std::vector<float> out(n, -1.0f);
  DecodeState(dtype, bytes, 0, absl::MakeSpan(out));
  return out;
}

std::vector<float> RoundTrip(StateDType dtype, const std::vector<float>& in) {
  return Decoded(dtype, Encoded(dtype, in), in.size());
}

// The bound that state_codec.h promises for the group of 32 to which element `i` belongs.
double Int8Bound(const std::vector<float>& in, size_t i) {
  const size_t begin = i / 32 * 32;
  const size_t end = std::min(begin + 32, in.size());
  double absmax = 0;
  for (size_t k = begin; k < end; ++k) absmax = std::max(absmax, std::abs(double{in[k]}));
  return (absmax / 127 * (1 + 0x1p-7) + 0x1p-133) / 2;
}

void ExpectWithinInt8Bound(const std::vector<float>& in) {
  const std::vector<float> out = RoundTrip(StateDType::kInt8, in);
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_LE(std::abs(double{in[i]} - double{out[i]}), Int8Bound(in, i)) << i << " " << in[i];
  }
}

TEST(StateCodecTest, SizesAreThoseOfTheFormat) {
  EXPECT_EQ(StateBytes(StateDType::kFloat32, 33), 132);
  EXPECT_EQ(StateBytes(StateDType::kBFloat16, 33), 66);
  EXPECT_EQ(StateBytes(StateDType::kInt8, 0), 0);
  EXPECT_EQ(StateBytes(StateDType::kInt8, 1), 3);
  EXPECT_EQ(StateBytes(StateDType::kInt8, 32), 34);
  EXPECT_EQ(StateBytes(StateDType::kInt8, 33), 37);
  EXPECT_EQ(StateBytes(StateDType::kSqrtUInt8, 33), 37);
}

TEST(StateCodecTest, ZeroBytesAreZerosAndZerosAreZeroBytes) {
  for (const StateDType dtype : kDTypes) {
    const std::vector<std::byte> zero_bytes(StateBytes(dtype, 71));
    EXPECT_EQ(Decoded(dtype, zero_bytes, 71), std::vector<float>(71, 0.0f));
    EXPECT_EQ(Encoded(dtype, std::vector<float>(71, 0.0f)), zero_bytes);
  }
}

// docs/formats.md: the scale, then the codes, group after group.
TEST(StateCodecTest, BytesOfInt8AreThoseOfTheFormat) {
  std::vector<float> in(34, 0.0f);
  in[0] = 127.0f;
  in[1] = -3.4f;
  in[31] = 2.5f;
  in[33] = -127.0f / 1024;
  std::vector<std::byte> expected(34 + 4);
  expected[0] = std::byte{0x80};
  expected[1] = std::byte{0x3f};  // 1
  expected[2] = std::byte{127};
  expected[3] = std::byte{0xfd};  // -3
  expected[33] = std::byte{2};    // 2.5, to even
  expected[34] = std::byte{0x80};
  expected[35] = std::byte{0x3a};  // 2^-10
  expected[37] = std::byte{0x81};  // -127
  EXPECT_EQ(Encoded(StateDType::kInt8, in), expected);
}

TEST(StateCodecTest, Float32KeepsEveryBit) {
  std::vector<float> in = reference::GaussianVector(67, 1);
  in[3] = -0.0f;
  in[4] = FLT_TRUE_MIN;
  const std::vector<float> out = RoundTrip(StateDType::kFloat32, in);
  EXPECT_EQ(memcmp(out.data(), in.data(), in.size() * sizeof(float)), 0);
}

TEST(StateCodecTest, BFloat16RoundsToNearestEvenAndStaysFinite) {
  const std::vector<float> in = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -1.0f - 0x1.1p-8f, 1e-30f, 1e30f};
  const std::vector<float> out = RoundTrip(StateDType::kBFloat16, in);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f + 0x1p-6f);
  EXPECT_EQ(out[2], -1.0f - 0x1p-7f);
  EXPECT_NEAR(out[3], 1e-30, 0x1p-8 * 1e-30);
  EXPECT_NEAR(out[4], 1e30, 0x1p-8 * 1e30);
  const std::vector<float> largest = RoundTrip(StateDType::kBFloat16, {FLT_MAX, -FLT_MAX});
  EXPECT_EQ(largest[0], 0x1.fep127f);
  EXPECT_EQ(largest[1], -0x1.fep127f);
}

// Edge 53; [Q1]: absmax / 254 but for the scale's own rounding, over the whole range of fp32.
TEST(StateCodecTest, Int8ErrorIsWithinHalfAScaleAtEveryMagnitude) {
  const std::vector<float> unit = reference::GaussianVector(32 * 20 + 5, 2);
  for (int exponent = -149; exponent <= 124; ++exponent) {
    std::vector<float> in = unit;
    for (float& x : in) x = std::ldexp(x, exponent);
    ExpectWithinInt8Bound(in);
  }
}

// Edge 53: only the group with the outlier becomes coarse.
TEST(StateCodecTest, AnOutlierCoarsensItsOwnGroupOnly) {
  std::vector<float> in = reference::GaussianVector(96, 3);
  const std::vector<float> before = RoundTrip(StateDType::kInt8, in);
  in[40] = -1e6f;
  ExpectWithinInt8Bound(in);
  const std::vector<float> after = RoundTrip(StateDType::kInt8, in);
  EXPECT_NEAR(after[40], -1e6, 1e6 / 254 * (1 + 0x1p-7));
  for (size_t i = 0; i < 96; ++i) {
    if (i < 32 || i >= 64) {
      ASSERT_EQ(after[i], before[i]) << i;
    } else if (i != 40) {
      ASSERT_EQ(after[i], 0.0f) << i;
    }
  }
}

// Edge 53: the group that ends the slot.
TEST(StateCodecTest, TailGroupsOfEveryLengthKeepTheBound) {
  for (size_t n = 1; n <= 65; ++n) ExpectWithinInt8Bound(reference::GaussianVector(n, 4));
}

TEST(StateCodecTest, Int8NeverOverflowsNorMakesNan) {
  for (const float largest : {FLT_MAX, 0.99f * FLT_MAX, HUGE_VALF, NAN}) {
    std::vector<float> in(32, 0.0f);
    in[0] = largest;
    in[1] = -largest;
    in[2] = 1e38f;
    const std::vector<float> out = RoundTrip(StateDType::kInt8, in);
    for (const float x : out) ASSERT_TRUE(std::isfinite(x)) << largest;
    EXPECT_NEAR(out[2], 1e38, FLT_MAX / 200);
  }
}

// [Q2]: a root is within one scale, and only a root of 0 has the code 0.
TEST(StateCodecTest, RootsAreWithinOneScaleAndNeverVanish) {
  const std::vector<float> unit = reference::GaussianVector(32 * 20 + 5, 7);
  for (int exponent = -96; exponent <= 124; ++exponent) {
    std::vector<float> in = unit;
    for (float& x : in) x = std::ldexp(std::abs(x), exponent);
    const std::vector<float> out = RoundTrip(StateDType::kSqrtUInt8, in);
    for (size_t begin = 0; begin < in.size(); begin += 32) {
      const size_t end = std::min(begin + 32, in.size());
      const double largest = std::sqrt(*std::max_element(&in[begin], &in[0] + end));
      const double scale = largest / 255 * (1 + 0x1p-7);
      for (size_t i = begin; i < end; ++i) {
        ASSERT_LE(std::abs(std::sqrt(out[i]) - std::sqrt(in[i])), scale) << in[i];
        ASSERT_EQ(out[i] > 0, in[i] > 0) << in[i];
      }
    }
  }
}

// [Q2]: rounding at random keeps the mean, so what shrinks by less than a code a step does shrink.
TEST(StateCodecTest, RootsAreRoundedWithoutBias) {
  std::vector<float> in(3200, 0.0f);
  for (size_t i = 0; i < in.size(); ++i) in[i] = i % 32 == 0 ? 255 * 255 : 100.3f * 100.3f;
  double sum = 0;
  for (uint32_t t = 1; t <= 50; ++t) {
    std::vector<std::byte> bytes(StateBytes(StateDType::kSqrtUInt8, in.size()));
    EncodeState(StateDType::kSqrtUInt8, in, 0, absl::MakeSpan(bytes), RootSeedOf(5, t));
    for (const float x : Decoded(StateDType::kSqrtUInt8, bytes, in.size())) sum += std::sqrt(x);
  }
  // 31 of 32 elements; the draws' standard deviation is 0.0012.
  const double mean = (sum / 50 - 255 * 100) / 3100;
  EXPECT_NEAR(mean, 100.3, 0.01);
}

// Elements 2^32 apart have draws of their own.
TEST(StateCodecTest, DrawsDependOnTheWholeIndex) {
  int equal = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    equal += RootDrawOf(7, i) == RootDrawOf(7, i + (int64_t{1} << 32)) ? 1 : 0;
  }
  EXPECT_LT(equal, 3);
}

TEST(StateCodecTest, RootsNeverOverflow) {
  for (const float largest : {FLT_MAX, HUGE_VALF, NAN}) {
    for (const float x : RoundTrip(StateDType::kSqrtUInt8, std::vector<float>(40, largest))) {
      ASSERT_TRUE(std::isfinite(x)) << largest;
      EXPECT_GT(x, FLT_MAX * 0.98f);
    }
  }
}

TEST(StateCodecTest, ChunksGiveTheSameBytesAndValuesAsTheWhole) {
  std::vector<float> in = reference::GaussianVector(101, 6);
  for (const StateDType dtype : kDTypes) {
    if (dtype == StateDType::kSqrtUInt8) {
      for (float& x : in) x = std::abs(x);
    }
    const std::vector<std::byte> whole = Encoded(dtype, in);
    std::vector<std::byte> chunked(whole.size());
    std::vector<float> out(in.size());
    for (const auto& [first, n] : {std::pair<int, int>{0, 64}, {64, 32}, {96, 5}}) {
      EncodeState(dtype, absl::MakeSpan(in).subspan(first, n), first, absl::MakeSpan(chunked));
      DecodeState(dtype, chunked, first, absl::MakeSpan(out).subspan(first, n));
    }
    EXPECT_EQ(chunked, whole);
    EXPECT_EQ(out, Decoded(dtype, whole, in.size()));
  }
}

TEST(StateCodecDeathTest, RefusesToCutAGroup) {
  std::vector<float> values(40);
  std::vector<std::byte> bytes(StateBytes(StateDType::kInt8, 40));
  EXPECT_DEATH(DecodeState(StateDType::kInt8, bytes, 16, absl::MakeSpan(values).first(8)),
               "first element is 16");
  EXPECT_DEATH(
      EncodeState(StateDType::kInt8, absl::MakeSpan(values).first(8), 0, absl::MakeSpan(bytes)),
      "8 elements from 0 cut a group");
  EXPECT_DEATH(DecodeState(StateDType::kInt8, bytes, 32, absl::MakeSpan(values)),
               "of a slot of 44");
}

}  // namespace
}  // namespace kaon::kernels
