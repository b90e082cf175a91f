#include "kernels/cuda/products/symmetric_product.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/immediate_device.h"
#include "tests/kernels/cuda/products/symmetric_cases.h"

namespace kaon::kernels::cuda {
namespace {

TEST(SymmetricProductTest, EqualsALoopOnRaggedShapes) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 200, .k = 72}, 4), 0);
  EXPECT_EQ(WrongSymmetricProducts({.n = 129, .k = 7}, 2), 0);
  EXPECT_EQ(WrongSymmetricProducts({.n = 1, .k = 1}, 2), 0);
}

TEST(SymmetricProductTest, EqualsALoopOnSeveralTilesOfABlock) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 264, .k = 320, .multiprocessors = 2}, 3), 0);
}

TEST(SymmetricProductTest, AddsTheMatrixC) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 260, .k = 64, .alpha = 2.5f, .beta = -0.5f}, 3), 0);
}

TEST(SymmetricProductTest, AddsThePartsOfACutWave) {
  // 3 tiles of two blocks on 6 multiprocessors: 2 parts each, of 4 and 5 steps.
  EXPECT_EQ(
      WrongSymmetricProducts({.n = 264, .k = 520, .alpha = 3, .beta = 2, .multiprocessors = 6}, 2),
      0);
  // 1 tile on 7: 3 parts of 4 and 5 steps.
  EXPECT_EQ(WrongSymmetricProducts({.n = 100, .k = 830, .multiprocessors = 7}, 3), 0);
}

TEST(SymmetricProductTest, MultipliesABatch) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 72, .k = 100, .batch = 5, .beta = 1}, 3), 0);
  EXPECT_EQ(WrongSymmetricProducts({.n = 24, .k = 520, .batch = 3, .multiprocessors = 2}, 2), 0);
}

TEST(SymmetricProductTest, WritesMatricesMoreThan2To31ElementsApart) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 24, .k = 8, .batch = 2, .far = true}, 1), 0);
}

TEST(SymmetricProductTest, MultipliesHalfPrecision) {
  EXPECT_EQ(WrongSymmetricProducts({.n = 200, .k = 72, .dtype = DType::kFloat16, .beta = 1}, 3), 0);
}

TEST(SymmetricProductTest, SupportsHopperOnly) {
  DeviceProperties properties = ImmediateDevice(132, 1).properties();
  EXPECT_TRUE(SymmetricProductSupported(properties));
  properties.shared_bytes_per_block = 164 * 1024;
  EXPECT_FALSE(SymmetricProductSupported(properties));
  properties = ImmediateDevice(132, 1).properties();
  properties.major = 10;
  EXPECT_FALSE(SymmetricProductSupported(properties));
}

TEST(SymmetricProductDeathTest, RefusesUnpaddedRows) {
  ImmediateDevice device(4, 1);
  const auto product = SymmetricProduct::Create(device, {.n = 9, .k = 9});
  alignas(16) uint16_t values[128] = {};
  const SymmetricMatrices unpadded = {values, 9, 0};
  const auto stream = device.NewStream();
  EXPECT_DEATH((*product)->Run(*stream, {unpadded, unpadded, unpadded, unpadded}),
               "matrix A at .*pitch 9, stride 0: rows must start on 16-byte boundaries");
}

}  // namespace
}  // namespace kaon::kernels::cuda
