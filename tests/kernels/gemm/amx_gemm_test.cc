#include "kernels/gemm/amx_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/gemm/amx_tiles.h"
#include "kernels/gemm/onednn_gemm.h"
#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/gemm/gemm_cases.h"
#include "tests/kernels/gemm/stored_product.h"

namespace kaon::kernels {
namespace {

// Adds products of several tasks and of several inner pieces, some of them ragged.
std::vector<GemmCase> Cases() {
  std::vector<GemmCase> cases = GemmCases();
  for (const bool transpose_b : {false, true}) {
    for (const float beta : {0.0f, 2.0f}) {
      cases.push_back(CaseOf({.rows = 161,
                              .cols = 290,
                              .inner = 1100,
                              .transpose_b = transpose_b,
                              .alpha = 0.5f,
                              .beta = beta}));
      cases.push_back(CaseOf({.rows = 40,
                              .cols = 33,
                              .inner = 2050,
                              .transpose_b = transpose_b,
                              .alpha = -1,
                              .beta = beta}));
    }
  }
  for (const float beta : {0.0f, -1.75f}) {
    cases.push_back(SymmetricCase(50, 20, false, beta));
    cases.push_back(SymmetricCase(321, 1030, false, beta));
    cases.push_back(SymmetricCase(261, 261, true, beta));
    // Sums too long for one in fp32.
    cases.push_back(SymmetricCase(161, AmxGemm::kLongestSum + 70, false, beta));
  }
  return cases;
}

class AmxGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX tiles";
    gemm_ = Make(pool_);
  }

  static std::unique_ptr<AmxGemm> Make(ThreadPool& pool) {
    return std::make_unique<AmxGemm>(std::make_unique<ReferenceGemm>(), pool);
  }

  ThreadPool pool_{2};
  std::unique_ptr<AmxGemm> gemm_;
};

TEST_F(AmxGemmTest, EqualsTheFloat64ProductInBothStorages) {
  EXPECT_EQ(gemm_->name(), "amx");
  for (const GemmCase& c : Cases()) {
    c.ExpectClose(Product(*gemm_, c));
    c.ExpectClose(BFloat16Product(*gemm_, c));
  }
}

TEST_F(AmxGemmTest, AgreesWithTheLibraryAndTheReference) {
  OneDnnGemm onednn;
  ReferenceGemm plain;
  for (const GemmCase& c : Cases()) {
    const std::vector<float> result = BFloat16Product(*gemm_, c);
    EXPECT_LE(reference::RelativeError(result, reference::Widened(BFloat16Product(onednn, c))),
              2e-6);
    EXPECT_LE(reference::RelativeError(result, reference::Widened(BFloat16Product(plain, c))),
              2e-6);
  }
}

TEST_F(AmxGemmTest, StoredProductsAreRoundedOnce) {
  for (const GemmCase& c : Cases()) ExpectRoundedOnce(c, StoredProduct(*gemm_, c));
}

// protocol.md section 3: "no thread-count-dependent reductions".
TEST_F(AmxGemmTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  ThreadPool one(1);
  const std::unique_ptr<AmxGemm> expected = Make(one);
  for (const int threads : {2, 8}) {
    ThreadPool pool(threads);
    const std::unique_ptr<AmxGemm> gemm = Make(pool);
    for (const GemmCase& c : Cases()) {
      EXPECT_EQ(BFloat16Product(*gemm, c), BFloat16Product(*expected, c)) << threads;
      EXPECT_EQ(StoredProduct(*gemm, c), StoredProduct(*expected, c)) << threads;
    }
  }
}

TEST_F(AmxGemmTest, ASymmetricResultIsTheWholeProduct) {
  for (const bool square : {false, true}) {
    GemmCase c = SymmetricCase(261, 261, square, 0);
    const std::vector<float> mirrored = StoredProduct(*gemm_, c);
    c.product.symmetric = false;
    EXPECT_EQ(mirrored, StoredProduct(*gemm_, c)) << square;
  }
}

TEST_F(AmxGemmTest, WritesRowsOfAWiderMatrix) {
  GemmCase c = CaseOf({.rows = 33, .cols = 5, .inner = 40, .alpha = 1, .c_stride = 7});
  c.c.assign(33 * 7, -1.0f);
  const std::vector<float> wide = BFloat16Product(*gemm_, c);
  c.product.c_stride = 0;
  const std::vector<float> dense = BFloat16Product(*gemm_, c);
  for (int64_t i = 0; i < 33; ++i) {
    for (int64_t j = 0; j < 7; ++j) {
      EXPECT_EQ(wide[i * 7 + j], j < 5 ? dense[i * 5 + j] : -1.0f) << i << ", " << j;
    }
  }
}

TEST_F(AmxGemmTest, SpecialValuesReachTheirRowAndColumnAlone) {
  GemmCase c = CaseOf({.rows = 70, .cols = 45, .inner = 50, .alpha = 1});
  c.a[3 * 50 + 7] = std::nanf("");
  c.b[9 * 45 + 40] = INFINITY;
  for (const std::vector<float>& result : {BFloat16Product(*gemm_, c), StoredProduct(*gemm_, c)}) {
    for (int64_t i = 0; i < 70; ++i) {
      for (int64_t j = 0; j < 45; ++j) {
        EXPECT_EQ(std::isfinite(result[i * 45 + j]), i != 3 && j != 40) << i << ", " << j;
      }
    }
  }
}

TEST_F(AmxGemmTest, MayBeUsedBySeveralThreadsAtOnce) {
  const GemmCase c = CaseOf({.rows = 161, .cols = 290, .inner = 1100, .alpha = 1});
  const std::vector<float> expected = BFloat16Product(*gemm_, c);
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> threads;
  for (std::vector<float>& result : results) {
    threads.emplace_back([&] { result = BFloat16Product(*gemm_, c); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace kaon::kernels
