#include "kernels/gemm/tiled_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/gemm/reference_gemm.h"
#include "kernels/mutex.h"
#include "tests/kernels/gemm/gemm_cases.h"

namespace kaon::kernels {
namespace {

// Counts its calls.
class CountingGemm : public Gemm {
 public:
  explicit CountingGemm(int64_t* multiply_adds) : multiply_adds_(multiply_adds) {}

  absl::string_view name() const override { return "counting"; }
  void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) override {
    Note(product);
    gemm_.Multiply(product, a, b, c);
  }
  void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                        float* c) override {
    Note(product);
    gemm_.MultiplyBFloat16(product, a, b, c);
  }

 private:
  void Note(const MatrixProduct& product) {
    MutexLock lock(mu_);
    *multiply_adds_ += product.rows * product.cols * product.inner;
  }

  Mutex mu_;
  int64_t* const multiply_adds_;
  ReferenceGemm gemm_;
};

std::vector<GemmCase> LargeCases() {
  std::vector<GemmCase> cases = GemmCases();
  for (const bool transpose_b : {false, true}) {
    cases.push_back(CaseOf({.rows = 1 + 2 * TiledGemm::kTileRows,
                            .cols = 65,
                            .inner = 33,
                            .transpose_b = transpose_b,
                            .alpha = 0.5f,
                            .beta = 2}));
  }
  for (const float beta : {0.0f, -1.75f}) {
    cases.push_back(SymmetricCase(50, 20, false, beta));
    cases.push_back(SymmetricCase(2 * TiledGemm::kTileRows + 10, 40, false, beta));
    // Whole lines and a part of one in the last tile.
    cases.push_back(SymmetricCase(2 * TiledGemm::kTileRows + 50, 24, false, beta));
    cases.push_back(SymmetricCase(TiledGemm::kTileRows + 1, TiledGemm::kTileRows + 1, true, beta));
    // A cut inner dimension: in fp32 alone, in both storages, with two stretches of columns; few
    // rows and many.
    cases.push_back(
        SymmetricCase(TiledGemm::kTileRows + 2, TiledGemm::kLongestSum + 9, false, beta));
    for (const bool transpose_b : {false, true}) {
      cases.push_back(CaseOf({.rows = 2,
                              .cols = TiledGemm::kSummedCols + 3,
                              .inner = TiledGemm::kLongestBFloat16Sum + 5,
                              .transpose_b = transpose_b,
                              .alpha = 0.5f,
                              .beta = beta}));
    }
  }
  return cases;
}

TEST(TiledGemmTest, EqualsTheFloat64ProductInBothStorages) {
  ThreadPool pool(2);
  TiledGemm gemm(std::make_unique<ReferenceGemm>(), pool);
  EXPECT_EQ(gemm.name(), "reference");
  for (const GemmCase& c : LargeCases()) {
    c.ExpectClose(Product(gemm, c));
    c.ExpectClose(BFloat16Product(gemm, c));
  }
}

// protocol.md section 3: "no thread-count-dependent reductions".
TEST(TiledGemmTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  ThreadPool one(1);
  TiledGemm expected(std::make_unique<ReferenceGemm>(), one);
  for (const int threads : {2, 8}) {
    ThreadPool pool(threads);
    TiledGemm gemm(std::make_unique<ReferenceGemm>(), pool);
    for (const GemmCase& c : LargeCases()) {
      EXPECT_EQ(Product(gemm, c), Product(expected, c)) << threads;
      EXPECT_EQ(BFloat16Product(gemm, c), BFloat16Product(expected, c)) << threads;
    }
  }
}

TEST(TiledGemmTest, OfASymmetricResultComputesLittleMoreThanHalf) {
  const int64_t n = 8 * TiledGemm::kTileRows;
  ThreadPool pool(1);
  int64_t multiply_adds = 0;
  TiledGemm gemm(std::make_unique<CountingGemm>(&multiply_adds), pool);
  const std::vector<float> result = Product(gemm, SymmetricCase(n, 1, false, 0));
  EXPECT_EQ(multiply_adds, n * n * 9 / 16);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j)
      ASSERT_EQ(result[i * n + j], result[j * n + i]) << i << " " << j;
  }
}

}  // namespace
}  // namespace kaon::kernels
