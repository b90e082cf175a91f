#include "kernels/rules/muon.h"

#include <gtest/gtest.h>

#include <utility>

#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/muon_elements.h"
#include "tests/kernels/reference/float64_muon.h"

namespace kaon::kernels {
namespace {

// [S1] for tall, wide and square matrices, stored either way ([L1]).
TEST(MuonTest, ScalesAreThoseOfTheReference) {
  const std::pair<UpdateScale, const char*> scales[] = {
      {UpdateScale::kNone, "none"},
      {UpdateScale::kOriginal, "original"},
      {UpdateScale::kMaxDim, "max_dim"},
      {UpdateScale::kMatchRmsAdamW, "match_rms_adamw"},
      {UpdateScale::kUnitRmsNorm, "unit_rms_norm"},
  };
  const int shapes[][2] = {{4, 9}, {9, 4}, {5, 5}, {1, 100}};
  for (const auto& [scale, name] : scales) {
    for (const auto& [rows, cols] : shapes) {
      for (const double extra : {1.0, 0.25, 3.0}) {
        MuonConfig config;
        config.scale = scale;
        config.scale_extra = extra;
        EXPECT_DOUBLE_EQ(Muon::UpdateScaleOf(config, rows, cols),
                         extra * reference::ScaleNamed(name, rows, cols))
            << name << " " << rows << "x" << cols;
        config.layout.transposed = true;
        EXPECT_DOUBLE_EQ(Muon::UpdateScaleOf(config, rows, cols),
                         extra * reference::ScaleNamed(name, cols, rows))
            << name << " " << rows << "x" << cols;
      }
    }
  }
}

TEST(MuonTest, FlopsCountTheWideForm) {
  MuonConfig config;
  config.newton_schulz.steps = 1;
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 2, 10), 4.0 * 2 * 2 * 10 + 2.0 * 2 * 2 * 2);
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 10, 2), Muon::NewtonSchulzFlops(config, 2, 10));
}

// [N7]: 5 steps from 2 starts; only products with the wide side depend on it.
TEST(MuonTest, FlopsOfTheGramFormHaveTheWideSideOncePerStart) {
  MuonConfig config;
  config.newton_schulz.form = NsForm::kGram;
  config.newton_schulz.gram_restarts = {2};
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 2, 10),
                   2 * 4.0 * 2 * 2 * 10 + (4 * 5 - 3 * 2) * 2.0 * 2 * 2 * 2);
  EXPECT_LT(Muon::NewtonSchulzFlops(config, 64, 4096),
            Muon::NewtonSchulzFlops(MuonConfig{}, 64, 4096));
  // Square matrices use the standard form.
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 64, 64),
                   Muon::NewtonSchulzFlops(MuonConfig{}, 64, 64));
}

TEST(MuonTest, NesterovLooksAheadOfTheUpdatedMomentum) {
  const MuonMomentumScalars s = {PrepareClip(0.5), 0.75f, 0.25f, true, {}};
  float momentum = 4.0f;
  // g = 0.5 * 8; M = 0.75 * 4 + 0.25 * 4; D = 0.75 * 4 + 0.25 * 4.
  EXPECT_EQ(MuonDirection(s, 8.0f, 100.0f, momentum), 4.0f);
  EXPECT_EQ(momentum, 4.0f);
  // g = 16: M = 7, D = 0.75 * 7 + 4.
  EXPECT_EQ(MuonDirection(s, 32.0f, 100.0f, momentum), 9.25f);
  EXPECT_EQ(momentum, 7.0f);
}

TEST(MuonTest, WithoutNesterovTheDirectionIsTheMomentum) {
  const MuonMomentumScalars s = {PrepareClip(1), 0.75f, 0.25f, false, {}};
  float momentum = 4.0f;
  EXPECT_EQ(MuonDirection(s, 16.0f, 100.0f, momentum), 7.0f);
  EXPECT_EQ(momentum, 7.0f);
}

// The momentum form `sum` adds the whole gradient ([M2]).
TEST(MuonTest, SumTakesTheWholeGradient) {
  const MuonMomentumScalars s = {PrepareClip(0.5), 0.75f, 1.0f, true, {}};
  float momentum = 4.0f;
  // M = 0.75 * 4 + 4; D = 0.75 * 7 + 4.
  EXPECT_EQ(MuonDirection(s, 8.0f, 100.0f, momentum), 9.25f);
  EXPECT_EQ(momentum, 7.0f);
}

// [M1]: after the clip, which does not scale the decay ([C9]).
TEST(MuonTest, L2DecayEntersTheGradient) {
  const MuonMomentumScalars s = {PrepareClip(0.5), 0.75f, 0.25f, false, {0.0f, 0.125f}};
  float momentum = 4.0f;
  // g = 0.5 * 8 + 0.125 * 64.
  EXPECT_EQ(MuonDirection(s, 8.0f, 64.0f, momentum), 6.0f);
}

// [M5]: p (1 - lr wd) - lr U, the decay by the base rate.
TEST(MuonTest, DecayComesBeforeTheUpdate) {
  EXPECT_EQ(MuonWeight({{-0.25f, 0.0f}, 2.0f}, 1.5f, 8.0f), 8.0f * 0.75f - 3.0f);
}

}  // namespace
}  // namespace kaon::kernels
