#include "kernels/optimizer_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace kaon::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<uint64_t> kMatrix = {3, 5};
const double kNan = std::nan("");
const double kInfinity = std::numeric_limits<double>::infinity();

void ExpectRefused(const RuleConfig& rule, const std::string& field, const std::string& value) {
  const absl::Status status = ValidateRule(rule, kMatrix);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << " " << value;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(field), HasSubstr(value), HasSubstr("must be")));
}

TEST(OptimizerRuleTest, DefaultsAreValid) {
  EXPECT_EQ(ValidateRule(MuonConfig{}, kMatrix), absl::OkStatus());
  EXPECT_EQ(ValidateRule(AdamWConfig{}, kMatrix), absl::OkStatus());
  EXPECT_EQ(ValidateRule(AdamWConfig{}, {}), absl::OkStatus());
  EXPECT_EQ(ValidateRule(AdamWConfig{}, {2, 3, 4}), absl::OkStatus());
  EXPECT_EQ(ValidateRule(SgdConfig{}, {7}), absl::OkStatus());
  EXPECT_EQ(ValidateRule(LionConfig{}, {2, 3, 4}), absl::OkStatus());
}

// [M2]: 0.99999999 is 1 as the float that it is used as, and a momentum that sums never decays.
TEST(OptimizerRuleTest, RangesAreThoseOfTheFloatThatIsUsed) {
  for (const double bad : {0.99999999, 1 - 0x1p-25}) {
    MuonConfig muon;
    muon.momentum = bad;
    ExpectRefused(muon, "muon.momentum", "is 0.9999999");
    AdamWConfig adamw;
    adamw.beta2 = bad;
    ExpectRefused(adamw, "adamw.beta2", "must be in [0, 1) in fp32");
    SgdConfig sgd;
    sgd.momentum = bad;
    ExpectRefused(sgd, "sgd.momentum", "is 0.9999999");
    LionConfig lion;
    lion.beta1 = bad;
    ExpectRefused(lion, "lion.beta1", "is 0.9999999");
  }
  AdamWConfig largest;
  largest.beta2 = 1 - 0x1p-24;
  EXPECT_EQ(ValidateRule(largest, kMatrix), absl::OkStatus());
  // Infinite as a float: 0 times it would be NaN.
  largest.weight_decay = 1e39;
  ExpectRefused(largest, "adamw.weight_decay", "is 1e+39");
}

TEST(OptimizerRuleTest, MuonRangesAreChecked) {
  for (const double bad : {-0.1, 1.0, kNan}) {
    MuonConfig config;
    config.momentum = bad;
    ExpectRefused(config, "muon.momentum", "[0, 1)");
  }
  for (const double bad : {-1.0, kInfinity, kNan}) {
    MuonConfig config;
    config.weight_decay = bad;
    ExpectRefused(config, "muon.weight_decay", ">= 0");
  }
  for (const double bad : {0.0, -1.0, kInfinity, kNan}) {
    MuonConfig config;
    config.scale_extra = bad;
    ExpectRefused(config, "muon.scale_extra", "finite and > 0");
  }
  MuonConfig config;
  config.newton_schulz.steps = 0;
  ExpectRefused(config, "muon.ns_steps", "is 0");
  config.newton_schulz.steps = 100;
  ExpectRefused(config, "muon.ns_steps", "is 100");
  config.newton_schulz.steps = 99;
  EXPECT_EQ(ValidateRule(config, kMatrix), absl::OkStatus());
}

// [N3], [N7]: the whole iteration is checked, not its steps alone.
TEST(OptimizerRuleTest, MuonsNewtonSchulzIsChecked) {
  MuonConfig config;
  config.newton_schulz.coefficients = NsCoefficients::kDeepSeekV4;
  ExpectRefused(config, "muon.ns_steps", "be 10");
  config = {};
  config.newton_schulz.form = NsForm::kGram;
  config.newton_schulz.gram_restarts = {5};
  ExpectRefused(config, "muon.newton_schulz.gram_restarts[0]", "is 5");
}

TEST(OptimizerRuleTest, AdamWRangesAreChecked) {
  AdamWConfig config;
  config.beta1 = 1.0;
  ExpectRefused(config, "adamw.beta1", "is 1");
  config = {};
  config.beta2 = -0.5;
  ExpectRefused(config, "adamw.beta2", "is -0.5");
  config = {};
  config.eps = 0;
  ExpectRefused(config, "adamw.eps", "is 0");
  config = {};
  // 0 as the float that divides.
  config.eps = 1e-50;
  ExpectRefused(config, "adamw.eps", "is 1e-50");
  config.eps = kNan;
  ExpectRefused(config, "adamw.eps", "nan");
  config = {};
  config.weight_decay = -2;
  ExpectRefused(config, "adamw.weight_decay", "is -2");
}

TEST(OptimizerRuleTest, SgdRangesAreChecked) {
  ExpectRefused(SgdConfig{1.0}, "sgd.momentum", "is 1");
  ExpectRefused(SgdConfig{-0.1}, "sgd.momentum", "[0, 1)");
  ExpectRefused(SgdConfig{0.9, 1.5}, "sgd.dampening", "[0, 1]");
  ExpectRefused(SgdConfig{0.9, kNan}, "sgd.dampening", "nan");
  ExpectRefused(SgdConfig{0.9, 0, false, kInfinity}, "sgd.weight_decay", "is inf");
  ExpectRefused(SgdConfig{0, 0, true}, "sgd.nesterov", "momentum is 0, must be > 0");
  ExpectRefused(SgdConfig{0.9, 0.5, true}, "sgd.nesterov", "dampening is 0.5, must be 0");
  EXPECT_EQ(ValidateRule(SgdConfig{0.9, 1}, {7}), absl::OkStatus());
  EXPECT_EQ(ValidateRule(SgdConfig{0.9, 0, true}, {7}), absl::OkStatus());
}

TEST(OptimizerRuleTest, LionRangesAreChecked) {
  ExpectRefused(LionConfig{1.0}, "lion.beta1", "is 1");
  ExpectRefused(LionConfig{0.9, -0.5}, "lion.beta2", "is -0.5");
  ExpectRefused(LionConfig{0.9, 0.99, -1}, "lion.weight_decay", "is -1");
}

TEST(OptimizerRuleTest, MuonTakesMatricesOnly) {
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{5}, std::vector<uint64_t>{2, 3, 4}}) {
    const absl::Status status = ValidateRule(MuonConfig{}, shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(shape.size())));
  }
}

// A layout makes matrices of other shapes ([L2], [L5]), if it fits.
TEST(OptimizerRuleTest, MuonTakesWhatItsLayoutCutsIntoMatrices) {
  MuonConfig config;
  config.layout.kind = MatrixLayoutKind::kBatched;
  EXPECT_EQ(ValidateRule(config, {2, 3, 4}), absl::OkStatus());
  EXPECT_FALSE(ValidateRule(config, kMatrix).ok());
  config.layout.kind = MatrixLayoutKind::kQkvInterleaved;
  config.layout.sizes = {4, 1, 1, 1};
  EXPECT_EQ(ValidateRule(config, {98, 8}), absl::OkStatus());
  const absl::Status status = ValidateRule(config, {96, 8});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rows 96 are not a multiple of sizes 4 + 1 + 1 + 1 = 7"));
}

// The state is fp32 by default, whatever dtype the gradients have ([P3]).
TEST(OptimizerRuleTest, StateSlotsHaveTorchNamesAndTheShapesSize) {
  const std::vector<StateSlot> muon = StateSlots(MuonConfig{}, kMatrix);
  ASSERT_EQ(muon.size(), 1u);
  EXPECT_EQ(muon[0].name, "momentum_buffer");
  EXPECT_EQ(muon[0].num_elements, 15);
  const std::vector<StateSlot> adamw = StateSlots(AdamWConfig{}, {});
  ASSERT_EQ(adamw.size(), 2u);
  EXPECT_EQ(adamw[0].name, "exp_avg");
  EXPECT_EQ(adamw[1].name, "exp_avg_sq");
  EXPECT_EQ(adamw[1].num_elements, 1);
}

TEST(OptimizerRuleTest, StateSlotsDependOnWhatTheConfigurationUses) {
  EXPECT_EQ(StateSlots(SgdConfig{}, kMatrix).size(), 0u);
  ASSERT_EQ(StateSlots(SgdConfig{0.9}, kMatrix).size(), 1u);
  EXPECT_EQ(StateSlots(SgdConfig{0.9}, kMatrix)[0].name, "momentum_buffer");
  ASSERT_EQ(StateSlots(LionConfig{}, kMatrix).size(), 1u);
  EXPECT_EQ(StateSlots(LionConfig{}, kMatrix)[0].name, "exp_avg");
  AdamWConfig amsgrad;
  amsgrad.amsgrad = true;
  ASSERT_EQ(StateSlots(amsgrad, kMatrix).size(), 3u);
  EXPECT_EQ(StateSlots(amsgrad, kMatrix)[2].name, "max_exp_avg_sq");
}

// The dtype applies to the momentum only ([Q1]).
TEST(OptimizerRuleTest, MomentumDTypeSizesTheMomentumAndNoSecondMoment) {
  for (const auto& [dtype, num_bytes] : {std::pair{StateDType::kFloat32, 400},
                                         {StateDType::kBFloat16, 200},
                                         {StateDType::kInt8, 108}}) {
    MuonConfig muon;
    AdamWConfig adamw;
    adamw.amsgrad = true;
    SgdConfig sgd{0.9};
    LionConfig lion;
    muon.momentum_dtype = adamw.momentum_dtype = sgd.momentum_dtype = lion.momentum_dtype = dtype;
    for (const RuleConfig& rule : std::vector<RuleConfig>{muon, adamw, sgd, lion}) {
      const std::vector<StateSlot> slots = StateSlots(rule, {10, 10});
      EXPECT_EQ(slots[0].dtype, dtype);
      EXPECT_EQ(slots[0].num_bytes, num_bytes);
      for (size_t k = 1; k < slots.size(); ++k) {
        EXPECT_EQ(slots[k].dtype, StateDType::kFloat32);
        EXPECT_EQ(slots[k].num_bytes, 400);
      }
    }
  }
}

// [Q2]: both second moments have one dtype.
TEST(OptimizerRuleTest, SecondMomentsMayBeRootsInOneByte) {
  AdamWConfig adamw;
  adamw.amsgrad = true;
  adamw.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
  const std::vector<StateSlot> slots = StateSlots(adamw, {10, 10});
  EXPECT_EQ(slots[0].num_bytes, 400);
  EXPECT_EQ(slots[1].num_bytes, 108);
  EXPECT_EQ(slots[2].num_bytes, 108);
}

// [C7]: Muon is exempt by default, no other rule (edge case 5).
TEST(OptimizerRuleTest, ScaleInvarianceIsTheRulesOwnDeclaration) {
  EXPECT_TRUE(IsScaleInvariant(MuonConfig{}));
  EXPECT_FALSE(IsScaleInvariant(AdamWConfig{}));
  EXPECT_FALSE(IsScaleInvariant(SgdConfig{}));
  EXPECT_FALSE(IsScaleInvariant(LionConfig{}));
}

TEST(OptimizerRuleTest, NamesAreThoseOfTheConfiguration) {
  EXPECT_STREQ(RuleName(MuonConfig{}), "muon");
  EXPECT_STREQ(RuleName(AdamWConfig{}), "adamw");
  EXPECT_STREQ(RuleName(SgdConfig{}), "sgd");
  EXPECT_STREQ(RuleName(LionConfig{}), "lion");
}

TEST(OptimizerRuleTest, CostUnitIsOneAdamWElement) {
  EXPECT_DOUBLE_EQ(UpdateCost(AdamWConfig{}, {10, 20}), 200.0);
  EXPECT_DOUBLE_EQ(UpdateCost(AdamWConfig{}, {0, 20}), 0.0);
  EXPECT_DOUBLE_EQ(UpdateCost(SgdConfig{}, {10, 20}), 200.0 * 12 / 28);
}

TEST(OptimizerRuleTest, MuonCostGrowsWithTheSmallerSideAndTheSteps) {
  const double square = UpdateCost(MuonConfig{}, {512, 512});
  EXPECT_GT(square, 10 * UpdateCost(AdamWConfig{}, {512, 512}));
  EXPECT_GT(square, 2 * UpdateCost(MuonConfig{}, {128, 2048}));
  EXPECT_DOUBLE_EQ(UpdateCost(MuonConfig{}, {128, 2048}), UpdateCost(MuonConfig{}, {2048, 128}));
  MuonConfig longer;
  longer.newton_schulz.steps = 10;
  EXPECT_GT(UpdateCost(longer, {512, 512}), 1.9 * square);
}

// The cost of a fused parameter is that of its matrices.
TEST(OptimizerRuleTest, MuonCostIsThatOfTheBlocks) {
  MuonConfig batched;
  batched.layout.kind = MatrixLayoutKind::kBatched;
  EXPECT_DOUBLE_EQ(UpdateCost(batched, {8, 64, 128}), 8 * UpdateCost(MuonConfig{}, {64, 128}));
  MuonConfig split;
  split.layout.kind = MatrixLayoutKind::kSplitRows;
  split.layout.sizes = {64, 32};
  EXPECT_DOUBLE_EQ(UpdateCost(split, {96, 128}),
                   UpdateCost(MuonConfig{}, {64, 128}) + UpdateCost(MuonConfig{}, {32, 128}));
}

}  // namespace
}  // namespace kaon::kernels
