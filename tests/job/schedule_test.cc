#include "job/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kaon::job {
namespace {

v1::Schedule Make(v1::ScheduleKind kind, uint64_t warmup, uint64_t total, double final_factor,
                  uint64_t decay = 0) {
  v1::Schedule schedule;
  schedule.set_kind(kind);
  schedule.set_warmup_steps(warmup);
  schedule.set_total_steps(total);
  schedule.set_final_factor(final_factor);
  schedule.set_decay_steps(decay);
  return schedule;
}

std::vector<double> Factors(const v1::Schedule& schedule, uint64_t steps) {
  std::vector<double> factors;
  for (uint64_t n = 0; n < steps; ++n) factors.push_back(ScheduleFactor(schedule, n));
  return factors;
}

TEST(ScheduleTest, ConstantIsOneAfterItsWarmUp) {
  EXPECT_EQ(Factors(Make(v1::SCHEDULE_KIND_CONSTANT, 3, 0, 0), 6),
            (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 1}));
  EXPECT_EQ(ScheduleFactor({}, 0), 1);
  EXPECT_EQ(ScheduleFactor({}, uint64_t{1} << 40), 1);
}

TEST(ScheduleTest, LinearGoesStraightToItsEndAndStaysThere) {
  EXPECT_EQ(Factors(Make(v1::SCHEDULE_KIND_LINEAR, 1, 5, 0.5), 8),
            (std::vector<double>{0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.5, 0.5}));
}

TEST(ScheduleTest, CosineIsHalfAPeriod) {
  const v1::Schedule schedule = Make(v1::SCHEDULE_KIND_COSINE, 2, 10, 0.1);
  EXPECT_DOUBLE_EQ(ScheduleFactor(schedule, 0), 1.0 / 3);
  EXPECT_EQ(ScheduleFactor(schedule, 2), 1);
  for (uint64_t n = 2; n < 10; ++n) {
    const double expected = 0.1 + 0.9 * 0.5 * (1 + std::cos(std::acos(-1.0) * (n - 2) / 8.0));
    EXPECT_NEAR(ScheduleFactor(schedule, n), expected, 1e-15) << n;
  }
  EXPECT_EQ(ScheduleFactor(schedule, 10), 0.1);
  EXPECT_EQ(ScheduleFactor(schedule, 1000), 0.1);
}

TEST(ScheduleTest, WarmupStableDecayFallsInItsLastStepsOnly) {
  EXPECT_EQ(Factors(Make(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY, 1, 8, 0, 4), 10),
            (std::vector<double>{0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0}));
}

TEST(ScheduleTest, StaysWithinZeroAndOne) {
  for (int kind = 1; kind <= 4; ++kind) {
    const auto shape = static_cast<v1::ScheduleKind>(kind);
    const bool constant = shape == v1::SCHEDULE_KIND_CONSTANT;
    const bool decays = shape == v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY;
    const v1::Schedule schedule =
        Make(shape, 7, constant ? 0 : 100, constant ? 0 : 0.3, decays ? 93 : 0);
    for (const double factor : Factors(schedule, 120)) {
      EXPECT_GT(factor, 0) << kind;
      EXPECT_LE(factor, 1) << kind;
    }
  }
}

// So no schedule of any length can move a rate out of its range or make it NaN.
TEST(ScheduleTest, StaysWithinZeroAndOneAtTheLongestSchedulesThereAre) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  for (const v1::Schedule& schedule :
       {Make(v1::SCHEDULE_KIND_CONSTANT, kMost, 0, 0),
        Make(v1::SCHEDULE_KIND_COSINE, kMost - 1, kMost, 0),
        Make(v1::SCHEDULE_KIND_COSINE, 0, kMost, 1), Make(v1::SCHEDULE_KIND_LINEAR, 0, kMost, 0),
        Make(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY, 0, kMost, 0, kMost),
        Make(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY, kMost - 1, kMost, 1, 1)}) {
    for (const uint64_t n :
         {uint64_t{0}, uint64_t{1}, kMost / 2, kMost - 2, kMost - 1, kMost, ~uint64_t{0}}) {
      const double factor = ScheduleFactor(schedule, n);
      EXPECT_TRUE(factor >= 0 && factor <= 1) << schedule.ShortDebugString() << n << " " << factor;
    }
  }
}

// Edge 20: each group has its own base rate and its own schedule, at the start and later.
TEST(ScheduleTest, EveryGroupKeepsItsOwnRate) {
  v1::JobDefinition job;
  v1::ParameterGroup& matrices = *job.add_groups();
  matrices.set_name("matrices");
  matrices.set_lr(0.02);
  v1::ParameterGroup& scalars = *job.add_groups();
  scalars.set_name("scalars");
  scalars.set_lr(0.001);
  *scalars.mutable_schedule() = Make(v1::SCHEDULE_KIND_LINEAR, 0, 4, 0);
  v1::StepBody first;
  AddRates(job, 0, {}, first);
  EXPECT_EQ(first.rates(0).group(), "matrices");
  EXPECT_EQ(first.rates(0).learning_rate(), 0.02);
  EXPECT_EQ(first.rates(1).learning_rate(), 0.001);
  v1::StepBody second;
  AddRates(job, 2, {0.5, {}}, second);
  EXPECT_EQ(second.rates(0).learning_rate(), 0.02 * 0.5);
  EXPECT_EQ(second.rates(1).learning_rate(), 0.001 * 0.5 * 0.5);
  v1::StepBody third;
  AddRates(job, 2, {0.5, {{"scalars", 0.1}}}, third);
  EXPECT_EQ(third.rates(0).learning_rate(), second.rates(0).learning_rate());
  EXPECT_EQ(third.rates(1).learning_rate(), 0.001 * 0.5 * 0.5 * 0.1);
}

TEST(ScheduleTest, MultipliersSayWhatTheyAre) {
  EXPECT_EQ(RateMultipliers().Text(), "1");
  const RateMultipliers two{0.5, {{"adamw", 2}, {"muon", 0.1}}};
  EXPECT_EQ(two.Text(), "0.5 (adamw 2, muon 0.1)");
  EXPECT_EQ(two.OfGroup("muon"), 0.1);
  EXPECT_EQ(two.OfGroup("sgd"), 1);
}

}  // namespace
}  // namespace kaon::job
