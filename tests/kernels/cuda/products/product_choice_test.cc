#include "kernels/cuda/products/product_choice.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/test_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr SymmetricBatch kShape = {NsDType::kBFloat16, 4096, 14336, 1};

TEST(ProductChoiceTest, FindsWhatWasSet) {
  ProductChoice choice;
  EXPECT_FALSE(choice.Find(kShape));
  choice.Set(kShape, {SymmetricForm::kBlocks, {632, 475, 0}});
  EXPECT_EQ(choice.Find(kShape)->form, SymmetricForm::kBlocks);
  EXPECT_FALSE(choice.Find({NsDType::kFloat16, 4096, 14336, 1}));
}

TEST(ProductChoiceTest, ShowsFormsByShape) {
  ProductChoice choice;
  choice.Set(kShape, {SymmetricForm::kWgmma, {632, 475, 334.5}});
  choice.Set({NsDType::kFloat32, 3, 4, 64}, {SymmetricForm::kDense, {1, 0, 0}});
  EXPECT_EQ(choice.Forms(), (std::vector<ProductForm>{{"float32", 3, 4, 64, "dense"},
                                                      {"bfloat16", 4096, 14336, 1, "wgmma"}}));
}

TEST(ProductChoiceTest, TextIsReadBack) {
  ProductChoice choice;
  choice.Set(kShape, {SymmetricForm::kWgmma, {632, 475, 334.5}});
  choice.Set({NsDType::kFloat32, 3, 4, 64}, {SymmetricForm::kDense, {1, 0, 0}});
  EXPECT_EQ(choice.Text(),
            "fp32 3 4 64 dense 1 0 0\n"
            "bf16 4096 14336 1 wgmma 632 475 334.5\n");
  ProductChoice read;
  ASSERT_TRUE(read.Read(choice.Text()).ok());
  EXPECT_EQ(read.Text(), choice.Text());
}

TEST(ProductChoiceTest, RefusesOtherText) {
  for (const char* const line :
       {"bf16 1 2 3 dense 1 0", "bf16 1 2 3 sparse 1 0 0", "fp8 1 2 3 dense 1 0 0",
        "bf16 0 2 3 dense 1 0 0", "bf16 1 2 3 dense 1 0 x", "bf16 1 2 3 dense 1 0 0 0"}) {
    const absl::Status status = ProductChoice().Read(line);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_NE(status.message().find(line), absl::string_view::npos);
  }
}

// Times differ from run to run, and bits do not.
TEST(ProductChoiceTest, DigestIsOfFormsAndNotOfTimes) {
  ProductChoice choice;
  choice.Set(kShape, {SymmetricForm::kBlocks, {632, 475, 0}});
  ProductChoice later;
  later.Set(kShape, {SymmetricForm::kBlocks, {630, 471, 0}});
  EXPECT_EQ(choice.Digest(), later.Digest());
  later.Set(kShape, {SymmetricForm::kDense, {630, 471, 0}});
  EXPECT_NE(choice.Digest(), later.Digest());
}

TEST(ProductChoiceTest, TheRuleWantsAWaveOfTiles) {
  TestDevice device;
  const SymmetricProducts symmetric(device.device(), device.products());
  const auto form = [&](NsDType dtype, int64_t n, int64_t batch) {
    return FormByRule(symmetric, {dtype, n, n, batch}, 132);
  };
  EXPECT_EQ(form(NsDType::kBFloat16, 2048, 1), SymmetricForm::kDense);
  EXPECT_EQ(form(NsDType::kBFloat16, 2048, 4), SymmetricForm::kWgmma);
  EXPECT_EQ(form(NsDType::kBFloat16, 256, 66), SymmetricForm::kDense);
  EXPECT_EQ(form(NsDType::kFloat16, 4096, 1), SymmetricForm::kWgmma);
  EXPECT_EQ(form(NsDType::kFloat32, 4096, 1), SymmetricForm::kDense);
}

TEST(ProductChoiceTest, TextDigestsAreFixed) {
  EXPECT_EQ(TextDigest(""), 0xcbf29ce484222325u);
  EXPECT_EQ(TextDigest("a"), 0xaf63dc4c8601ec8cu);
}

}  // namespace
}  // namespace kaon::kernels::cuda
