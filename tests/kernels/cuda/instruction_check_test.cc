#include "kernels/cuda/instruction_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/float_bits.h"
#include "tests/kernels/cuda/immediate_device.h"

namespace kaon::kernels::cuda {
namespace {

// Small integers, whose sums are exact in any order. So a device must give the same bits.
int ValueAt(int64_t row, int64_t col, int salt) {
  return static_cast<int>((row * 31 + col * 17 + salt) % 15) - 7;
}

std::vector<uint16_t> MatrixOf(const InstructionCheck& check, int64_t rows, int salt) {
  std::vector<uint16_t> values(static_cast<size_t>(rows * check.pitch), 0x7fff);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < check.cols; ++j) {
      const auto value = static_cast<float>(ValueAt(i, j, salt));
      values[static_cast<size_t>(i * check.pitch + j)] =
          check.dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
    }
  }
  return values;
}

float Expected(const InstructionCheck& check, int64_t i, int64_t j) {
  if (check.row + i >= check.rows_a || check.row + j >= check.rows_b) return 0;
  int sum = 0;
  for (int64_t k = check.col; k < std::min<int64_t>(check.cols, check.col + 64); ++k) {
    sum += ValueAt(check.row + i, k, 1) * ValueAt(check.row + j, k, 2);
  }
  return static_cast<float>(sum);
}

void ExpectExact(InstructionCheck check) {
  const std::vector<uint16_t> a = MatrixOf(check, check.rows_a, 1);
  const std::vector<uint16_t> b = MatrixOf(check, check.rows_b, 2);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::vector<float> sums(64 * 256, -1.0f);
    check.a = a.data();
    check.b = b.data();
    check.sums = sums.data();
    ImmediateStream stream(seed);
    CheckInstructions(stream, check);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 64 * 256; ++i) {
      wrong += sums[static_cast<size_t>(i)] != Expected(check, i / 256, i % 256);
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(InstructionCheckTest, MultipliesWholeBoxes) {
  ExpectExact({.dtype = DType::kBFloat16});
  ExpectExact({.dtype = DType::kFloat16});
}

TEST(InstructionCheckTest, MultipliesBoxesThatReachPastTheMatrices) {
  ExpectExact({.rows_a = 100, .rows_b = 300, .cols = 90, .pitch = 96, .row = 60, .col = 64});
  ExpectExact({.dtype = DType::kFloat16, .rows_a = 10, .rows_b = 7, .cols = 3, .pitch = 8});
}

}  // namespace
}  // namespace kaon::kernels::cuda
