#include "kernels/gemm/onednn_gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <thread>
#include <vector>

#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/gemm/gemm_cases.h"

namespace kaon::kernels {
namespace {

using BFloat16Products = OneDnnGemm::BFloat16Products;

constexpr char kNoPrimitives[] = "this machine has no AVX-512, without which oneDNN has no bf16";

TEST(OneDnnGemmTest, EqualsTheFloat64ProductInBothStorages) {
  for (const BFloat16Products products :
       {BFloat16Products::kWhereNative, BFloat16Products::kWherePossible}) {
    OneDnnGemm gemm(products);
    for (const GemmCase& c : GemmCases()) {
      c.ExpectClose(Product(gemm, c));
      c.ExpectClose(BFloat16Product(gemm, c));
    }
  }
}

TEST(OneDnnGemmTest, AgreesWithTheReferenceProducts) {
  OneDnnGemm onednn;
  ReferenceGemm plain;
  for (const GemmCase& c : GemmCases()) {
    EXPECT_LE(reference::RelativeError(Product(onednn, c), reference::Widened(Product(plain, c))),
              2e-6);
  }
}

TEST(OneDnnGemmTest, ResultsDoNotDependOnTheThreadCountNorChangeIt) {
  GemmCase c;
  c.product = {256, 192, 1024, true, 1, 0};
  c.a = reference::GaussianVector(256 * 1024, 1);
  c.b = reference::GaussianVector(192 * 1024, 2);
  c.c.resize(256 * 192);
  OneDnnGemm gemm(BFloat16Products::kWherePossible);
  omp_set_num_threads(1);
  const std::vector<float> expected = Product(gemm, c);
  const std::vector<float> expected_bfloat16 = BFloat16Product(gemm, c);
  for (const int threads : {2, 8}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(Product(gemm, c), expected);
    EXPECT_EQ(BFloat16Product(gemm, c), expected_bfloat16);
    EXPECT_EQ(omp_get_max_threads(), threads);
  }
}

TEST(OneDnnGemmTest, KeepsOnePrimitivePerProductUpToItsBound) {
  OneDnnGemm gemm(BFloat16Products::kWherePossible);
  if (!gemm.has_primitives()) GTEST_SKIP() << kNoPrimitives;
  GemmCase c;
  c.a.resize(1000, 1.0f);
  c.b.resize(1000, 1.0f);
  c.c.resize(1000);
  c.product = {2, 2, 1, false, 1, 0};
  BFloat16Product(gemm, c);
  BFloat16Product(gemm, c);
  EXPECT_EQ(gemm.num_cached_primitives(), 1u);
  for (int inner = 1; inner <= 300; ++inner) {
    c.product.inner = inner;
    EXPECT_EQ(BFloat16Product(gemm, c)[0], inner);
  }
  EXPECT_EQ(gemm.num_cached_primitives(), OneDnnGemm::kMaxCachedPrimitives);
}

TEST(OneDnnGemmTest, ThreadsShareThePrimitives) {
  OneDnnGemm gemm(BFloat16Products::kWherePossible);
  if (!gemm.has_primitives()) GTEST_SKIP() << kNoPrimitives;
  const std::vector<GemmCase> cases = GemmCases();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (const GemmCase& c : cases) c.ExpectClose(BFloat16Product(gemm, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gemm.num_cached_primitives(), cases.size());
}

}  // namespace
}  // namespace kaon::kernels
