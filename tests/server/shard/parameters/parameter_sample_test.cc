#include "server/shard/parameters/parameter_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "server/shard/parameters/parameter_store.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;
constexpr uint32_t kFrozen = 2;
const std::vector<float> kGradientOfW = {0.5, -1, 2, 0.25, -0.5, 1};
const std::vector<float> kGradientOfB = {1, -2, 3, -4};

v1::ShardParameterRequest RequestFor(uint32_t id) {
  v1::ShardParameterRequest request;
  request.set_parameter_id(id);
  return request;
}

v1::ParameterHistory HistoryIn(DrivenShard& shard, uint32_t id) {
  return shard.core().History(RequestFor(id)).value();
}

std::vector<uint64_t> StepsOf(const SampleSeries& series) {
  std::vector<uint64_t> steps;
  for (const ParameterSample& sample : series.samples()) steps.push_back(sample.step);
  return steps;
}

TEST(SampleSeriesTest, DropsEverySecondSampleWhenItIsFull) {
  SampleSeries series;
  for (uint64_t step = 1; step <= 2000; ++step) {
    if (series.IsDue(step)) series.Add({step}, 8);
    EXPECT_LE(series.samples().capacity(), 8u);
  }
  EXPECT_LE(series.samples().size(), 8u);
  EXPECT_GE(series.samples().size(), 4u);
  // The first sample stays, so that the series covers all steps.
  EXPECT_EQ(series.samples().front().step, 1u);
  EXPECT_GE(series.samples().back().step + series.every_steps(), 2000u);
  EXPECT_EQ(series.every_steps() % SampleSeries::kFirstEvery, 0u);
}

TEST(SampleSeriesTest, ForgetsTheStepsThatAJobWentBackOver) {
  SampleSeries series;
  for (const uint64_t step : {1, 11, 21, 31}) series.Add({step}, 100);
  EXPECT_FALSE(series.IsDue(40));
  series.GoBackTo(15);
  EXPECT_EQ(StepsOf(series), (std::vector<uint64_t>{1, 11}));
  EXPECT_FALSE(series.IsDue(20));
  EXPECT_TRUE(series.IsDue(21));
  series.GoBackTo(0);
  EXPECT_TRUE(series.samples().empty());
  EXPECT_TRUE(series.IsDue(1));
}

TEST(StepLineageTest, SharesTheStepsThatLedToBothStates) {
  StepLineage lineage;
  // Timeline 2 begins with step 20 of timeline 1.
  EXPECT_EQ(lineage.GoBack(1, 1, 20), 20u);
  // Timeline 3 begins with step 50 of timeline 1, most of which timeline 2 replaced.
  EXPECT_EQ(lineage.GoBack(2, 1, 50), 20u);
  EXPECT_EQ(lineage.GoBack(3, 3, 60), 60u);
  EXPECT_EQ(lineage.GoBack(4, 1, 10), 10u);
  // Timeline 3 led nowhere from here.
  EXPECT_EQ(lineage.GoBack(5, 3, 60), 0u);
}

TEST(ParameterTraceTest, KeepsTheSamplesUpToTheStepThatItGoesBackTo) {
  ParameterTrace trace;
  trace.first_update_step = 1;
  trace.update = ParameterTrace::Update{0.1, kernels::AdamWConfig()};
  for (const uint64_t step : {1, 11, 21}) trace.samples.Add({step}, 100);
  trace.GoBackTo(11);
  EXPECT_EQ(StepsOf(trace.samples), (std::vector<uint64_t>{1, 11}));
  EXPECT_EQ(trace.first_update_step, 0u);
  EXPECT_FALSE(trace.update.has_value());
}

TEST(SampleSeriesTest, OfAllParametersFitTheirMemory) {
  for (const size_t parameters : {1, 150, 10000}) {
    EXPECT_LE(SampleSeries::CapacityOf(parameters) * parameters * sizeof(ParameterSample),
              SampleSeries::kBytes);
  }
  EXPECT_EQ(SampleSeries::CapacityOf(100000), 16u);
}

TEST(ParameterSampleTest, AreTheStatisticsOfTheNewestStep) {
  DrivenShard shard;
  shard.Load();
  EXPECT_FALSE(shard.core().Sample());
  shard.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_TRUE(shard.core().Sample());
  EXPECT_TRUE(shard.core().Sample());
  // The frozen parameter has none, and the others are not due again.
  EXPECT_FALSE(shard.core().Sample());
  EXPECT_EQ(HistoryIn(shard, kFrozen).samples_size(), 0);
  for (const uint32_t id : {kW, kB}) {
    const v1::ParameterStats stats = shard.core().Stats(RequestFor(id)).value();
    ASSERT_EQ(HistoryIn(shard, id).samples_size(), 1);
    const v1::ParameterSample sample = HistoryIn(shard, id).samples(0);
    EXPECT_EQ(sample.step(), 1u);
    EXPECT_FLOAT_EQ(sample.weight_norm(), stats.weight_norm());
    EXPECT_FLOAT_EQ(sample.grad_norm(), stats.grad_norm());
    EXPECT_FLOAT_EQ(sample.update_norm(), stats.update_norm());
    EXPECT_FLOAT_EQ(sample.update_to_weight_ratio(), stats.update_to_weight_ratio());
    EXPECT_EQ(sample.has_orthogonality_error(), stats.has_orthogonality_error());
    EXPECT_EQ(sample.has_stable_rank(), id == kW);
  }
  for (uint64_t step = 2; step <= 10; ++step) shard.Train(step, {kGradientOfW, kGradientOfB});
  EXPECT_FALSE(shard.core().Sample());
  shard.Train(11, {kGradientOfW, kGradientOfB});
  EXPECT_TRUE(shard.core().Sample());
  EXPECT_TRUE(shard.core().Sample());
  EXPECT_EQ(HistoryIn(shard, kW).samples_size(), 2);
}

TEST(ParameterSampleTest, ChangeNoDigest) {
  DrivenShard shard;
  DrivenShard unsampled;
  for (DrivenShard* one : {&shard, &unsampled}) {
    one->Load();
    for (uint64_t step = 1; step <= 3; ++step) {
      one->Train(step, {kGradientOfW, kGradientOfB});
      while (one == &shard && one->core().Sample()) {
      }
    }
  }
  EXPECT_EQ(shard.core().Describe("")->state_digest(),
            unsampled.core().Describe("")->state_digest());
}

TEST(ParameterSampleTest, OfALargeParameterAreEstimates) {
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend({});
  StoredParameter parameter;
  parameter.num_elements = kWholeSample + 12345;
  parameter.shape = {parameter.num_elements};
  parameter.trace.update = ParameterTrace::Update{0.1, kernels::AdamWConfig()};
  std::vector<float> before(parameter.num_elements);
  std::vector<float> after(parameter.num_elements);
  double squares = 0;
  double change = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    before[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    after[i] = before[i] + 0.001F * static_cast<float>(i % 7);
    squares += static_cast<double>(after[i]) * after[i];
    change += std::pow(static_cast<double>(after[i]) - before[i], 2);
  }
  const ParameterSample sample = SampleOf(parameter, *backend, after, {}, before, 9);
  EXPECT_EQ(sample.step, 9u);
  EXPECT_NEAR(sample.weight_norm / std::sqrt(squares), 1, 0.01);
  EXPECT_NEAR(sample.update_norm / std::sqrt(change), 1, 0.01);
  EXPECT_FLOAT_EQ(sample.update_to_weight_ratio, sample.update_norm / sample.weight_norm);
  EXPECT_TRUE(std::isnan(sample.stable_rank));
}

TEST(LargestOrthogonalityErrorTest, IsOfTheNewestSamplesWithALargeEnoughUpdate) {
  const float none = std::nanf("");
  const auto sampled = [&](std::vector<ParameterSample> samples) {
    StoredParameter parameter;
    for (const ParameterSample& sample : samples) parameter.trace.samples.Add(sample, 16);
    return parameter;
  };
  const auto at = [&](uint64_t step, float ratio, float error) {
    return ParameterSample{step, 1, 1, 1, ratio, error, none};
  };
  EXPECT_EQ(LargestOrthogonalityError({}), std::nullopt);
  EXPECT_EQ(LargestOrthogonalityError({sampled({}), sampled({at(1, 0.1F, none)})}), std::nullopt);
  // Rounding hides the first two, and the third is over.
  const std::vector<StoredParameter> parameters = {
      sampled({at(1, 1e-6F, 40)}), sampled({at(1, none, 30)}),
      sampled({at(1, 0.1F, 20), at(11, 0.1F, 0.25F)}), sampled({at(11, 0.1F, 0.5F)})};
  EXPECT_EQ(LargestOrthogonalityError(parameters), 0.5);
}

// W is updated by Muon.
TEST(LargestOrthogonalityErrorTest, IsThatOfTheShardsSamples) {
  DrivenShard shard;
  EXPECT_EQ(shard.core().OrthogonalityError(), std::nullopt);
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(shard.core().OrthogonalityError(), std::nullopt);
  while (shard.core().Sample()) {
  }
  const v1::ParameterStats stats = shard.core().Stats(RequestFor(kW)).value();
  ASSERT_TRUE(stats.has_orthogonality_error());
  ASSERT_TRUE(shard.core().OrthogonalityError().has_value());
  EXPECT_FLOAT_EQ(*shard.core().OrthogonalityError(), stats.orthogonality_error());
}

}  // namespace
}  // namespace kaon::shard
