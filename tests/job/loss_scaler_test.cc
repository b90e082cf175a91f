#include "job/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::job {
namespace {

v1::LossScaler Dynamic(double initial, double min, uint32_t interval, uint32_t hysteresis) {
  v1::LossScaler scaler;
  scaler.set_dynamic(true);
  scaler.set_initial_scale(initial);
  scaler.set_min_scale(min);
  scaler.set_growth_interval(interval);
  scaler.set_hysteresis(hysteresis);
  return scaler;
}

// One line per step of `script` ('o' overflow, '.' none): scale, growth counter, hysteresis.
std::string Script(const v1::LossScaler& scaler, const std::string& script) {
  LossScale scale = InitialLossScale(scaler);
  std::string lines;
  for (const char step : script) {
    scale = NextLossScale(scaler, scale, step == 'o');
    lines += std::to_string(static_cast<int>(scale.scale)) + " " +
             std::to_string(scale.state->growth_steps()) + " " +
             std::to_string(scale.state->hysteresis_left()) + "\n";
  }
  return lines;
}

// Edge 47, [T2b]: growth interval 3, hysteresis 2; worked out by hand from the rule.
TEST(LossScalerTest, FollowsAScriptedSequenceOfOverflows) {
  EXPECT_EQ(Script(Dynamic(64, 8, 3, 2), "..o.oo...ooooo....."),
            "64 1 2\n"    // .
            "64 2 2\n"    // .
            "64 0 1\n"    // o: the hysteresis lets it pass, growth starts over
            "64 1 1\n"    // .: hysteresis does not come back by itself
            "32 0 0\n"    // o: used up
            "16 0 0\n"    // o: every further one halves
            "16 1 0\n"    // .
            "16 2 0\n"    // .
            "32 0 2\n"    // .: grows, hysteresis is whole again
            "32 0 1\n"    // o
            "16 0 0\n"    // o
            "8 0 0\n"     // o
            "8 0 0\n"     // o: the minimum
            "8 0 0\n"     // o
            "8 1 0\n"     // .
            "8 2 0\n"     // .
            "16 0 2\n"    // .
            "16 1 2\n"    // .
            "16 2 2\n");  // .
}

TEST(LossScalerTest, HysteresisOfOneHalvesAtOnce) {
  EXPECT_EQ(Script(Dynamic(64, 1, 2, 1), "o.."), "32 0 0\n32 1 0\n64 0 1\n");
}

// [T2b]: a constant scaler never moves.
TEST(LossScalerTest, AConstantScaleNeverMoves) {
  v1::LossScaler scaler;
  scaler.set_initial_scale(1024);
  scaler.set_dynamic(false);
  LossScale scale = InitialLossScale(scaler);
  EXPECT_EQ(scale.scale, 1024);
  EXPECT_FALSE(scale.state.has_value());
  for (int step = 0; step < 5000; ++step) scale = NextLossScale(scaler, scale, step % 3 == 0);
  EXPECT_EQ(scale.scale, 1024);
}

TEST(LossScalerTest, NoScalerMeansOne) { EXPECT_EQ(InitialLossScale({}).scale, 1); }

// [T2b]: registration refuses such a minimum, but no overflow raises a scale in any case.
TEST(LossScalerTest, AnOverflowNeverRaisesTheScale) {
  const v1::LossScaler scaler = Dynamic(0.5, 1, 3, 1);
  EXPECT_EQ(NextLossScale(scaler, InitialLossScale(scaler), true).scale, 0.5);
  const v1::LossScaler far_below = Dynamic(1, 1024, 3, 1);
  EXPECT_EQ(NextLossScale(far_below, InitialLossScale(far_below), true).scale, 1);
}

TEST(LossScalerTest, NeverGrowsBeyondAFloat) {
  const v1::LossScaler scaler = Dynamic(0x1p127, 1, 1, 2);
  EXPECT_EQ(NextLossScale(scaler, InitialLossScale(scaler), false).scale, 0x1p127);
  const v1::LossScaler below = Dynamic(0x1p126, 1, 1, 2);
  EXPECT_EQ(NextLossScale(below, InitialLossScale(below), false).scale, 0x1p127);
}

}  // namespace
}  // namespace kaon::job
