#include "kernels/rules/muon.h"

#include <gtest/gtest.h>

#include "kernels/rules/muon_elements.h"
#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::kernels {
namespace {

// [S1] for tall, wide and square matrices.
TEST(MuonTest, ScalesAreThoseOfTheReference) {
  const int shapes[][2] = {{4, 9}, {9, 4}, {5, 5}, {1, 100}};
  for (const auto& [rows, cols] : shapes) {
    MuonConfig config;
    config.scale = UpdateScale::kMatchRmsAdamW;
    EXPECT_DOUBLE_EQ(Muon::UpdateScaleOf(config, rows, cols),
                     reference::ScaleMatchRmsAdamW(rows, cols));
    config.scale = UpdateScale::kOriginal;
    EXPECT_DOUBLE_EQ(Muon::UpdateScaleOf(config, rows, cols), reference::ScaleOriginal(rows, cols));
    config.layout.transposed = true;
    EXPECT_DOUBLE_EQ(Muon::UpdateScaleOf(config, rows, cols), reference::ScaleOriginal(cols, rows));
  }
}

TEST(MuonTest, FlopsCountTheWideForm) {
  MuonConfig config;
  config.newton_schulz.steps = 1;
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 2, 10), 4.0 * 2 * 2 * 10 + 2.0 * 2 * 2 * 2);
  EXPECT_DOUBLE_EQ(Muon::NewtonSchulzFlops(config, 10, 2), Muon::NewtonSchulzFlops(config, 2, 10));
}

TEST(MuonTest, NesterovLooksAheadOfTheUpdatedMomentum) {
  const MuonMomentumScalars s = {0.5f, 0.75f, 0.25f, true};
  float momentum = 4.0f;
  // g = 0.5 * 8; M = 0.75 * 4 + 0.25 * 4; D = 0.75 * 4 + 0.25 * 4.
  EXPECT_EQ(MuonDirection(s, 8.0f, momentum), 4.0f);
  EXPECT_EQ(momentum, 4.0f);
  // g = 16: M = 7, D = 0.75 * 7 + 4.
  EXPECT_EQ(MuonDirection(s, 32.0f, momentum), 9.25f);
  EXPECT_EQ(momentum, 7.0f);
}

TEST(MuonTest, WithoutNesterovTheDirectionIsTheMomentum) {
  const MuonMomentumScalars s = {1.0f, 0.75f, 0.25f, false};
  float momentum = 4.0f;
  EXPECT_EQ(MuonDirection(s, 16.0f, momentum), 7.0f);
  EXPECT_EQ(momentum, 7.0f);
}

// [M5]: p (1 - lr wd) - lr U, the decay by the base rate.
TEST(MuonTest, DecayComesBeforeTheUpdate) {
  EXPECT_EQ(MuonWeight({-0.25f, 2.0f}, 1.5f, 8.0f), 8.0f * 0.75f - 3.0f);
}

}  // namespace
}  // namespace kaon::kernels
