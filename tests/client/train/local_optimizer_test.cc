#include "client/train/local_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/train/random.h"

namespace kaon::train {
namespace {

using ::testing::HasSubstr;

constexpr double kLr = 0.5;
// So large that an AdamW step without momentum is g / (|g| + eps), close to linear in g.
constexpr double kEps = 10;

// One matrix for Muon, one vector for AdamW without memory.
kaon::JobDefinition TwoParameterJob(uint32_t world_size, double max_grad_norm) {
  kaon::JobDefinition job;
  job.name = "test";
  job.world_size = world_size;
  job.max_grad_norm = max_grad_norm;
  job.parameters.resize(2);
  job.parameters[0].name = "matrix";
  job.parameters[0].shape = {4, 3};
  job.parameters[1].name = "vector";
  job.parameters[1].shape = {5};
  job.groups.resize(2);
  job.groups[0].name = "muon";
  job.groups[0].rule = kaon::Rule::kMuon;
  job.groups[0].lr = 0.1;
  job.groups[1].name = "adamw";
  job.groups[1].rule = kaon::Rule::kAdamW;
  job.groups[1].lr = kLr;
  job.groups[1].adamw.beta1 = 0;
  job.groups[1].adamw.beta2 = 0;
  job.groups[1].adamw.eps = kEps;
  job.matrix_group = "muon";
  job.scalar_group = "adamw";
  return job;
}

std::vector<std::vector<float>> RandomTensors(uint64_t stream) {
  std::vector<std::vector<float>> tensors = {std::vector<float>(12), std::vector<float>(5)};
  for (size_t id = 0; id < 2; ++id) {
    for (size_t i = 0; i < tensors[id].size(); ++i) {
      tensors[id][i] = static_cast<float>(2 * UnitUniform(stream, id, i) - 1);
    }
  }
  return tensors;
}

LocalOptimizer MakeOptimizer(const kaon::JobDefinition& job) {
  kernels::BackendOptions options;
  options.gemm = "reference";
  return LocalOptimizer::Create(job, kernels::CreateBackend(options).value(), RandomTensors(1))
      .value();
}

// The contributions of a step, with the memory they borrow.
struct Contributions {
  explicit Contributions(const std::vector<double>& weights, uint64_t step = 1) {
    buffers.resize(weights.size());
    for (size_t rank = 0; rank < weights.size(); ++rank) {
      gradients.push_back(RandomTensors(100 + rank));
      StepContribution contribution;
      contribution.step = step;
      contribution.token_weight = weights[rank];
      contribution.gradients = &buffers[rank];
      list.push_back(contribution);
    }
    EncodeAll();
  }

  void EncodeAll() {
    for (size_t rank = 0; rank < list.size(); ++rank) Encode(gradients[rank], &buffers[rank]);
  }

  // Token-weighted mean in double.
  double Mean(int id, int i) const {
    double sum = 0;
    double weight = 0;
    for (size_t rank = 0; rank < list.size(); ++rank) {
      sum += list[rank].token_weight * gradients[rank][id][i];
      weight += list[rank].token_weight;
    }
    return sum / weight;
  }

  std::vector<std::vector<std::vector<float>>> gradients;
  std::vector<TensorBuffers> buffers;
  std::vector<StepContribution> list;
};

class LocalOptimizerMeanTest : public testing::TestWithParam<std::vector<double>> {};

TEST_P(LocalOptimizerMeanTest, StepsByTheTokenWeightedMeanInDouble) {
  const Contributions contributions(GetParam());
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(GetParam().size(), 0));
  const std::vector<std::vector<float>> before = optimizer.weights();
  ASSERT_TRUE(optimizer.Step(contributions.list).applied);
  for (int i = 0; i < 5; ++i) {
    const double g = contributions.Mean(1, i);
    EXPECT_NEAR(optimizer.weights()[1][i], before[1][i] - kLr * g / (std::abs(g) + kEps), 1e-6);
  }
}

TEST_P(LocalOptimizerMeanTest, ReportsTheNormsOfTheMean) {
  const Contributions contributions(GetParam());
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(GetParam().size(), 0.01));
  const kaon::StepRecord record = optimizer.Step(contributions.list);
  double squares[2] = {};
  for (int i = 0; i < 12; ++i) squares[0] += std::pow(contributions.Mean(0, i), 2);
  for (int i = 0; i < 5; ++i) squares[1] += std::pow(contributions.Mean(1, i), 2);
  EXPECT_NEAR(*record.grad_norm, std::sqrt(squares[0] + squares[1]), 1e-6);
  EXPECT_NEAR(*record.live_norm, std::sqrt(squares[1]), 1e-6);
  EXPECT_TRUE(record.norms[0].exempt);
  EXPECT_EQ(record.norms[0].clip_factor, 1);
  EXPECT_NEAR(record.norms[1].clip_factor, 0.01 / (std::sqrt(squares[1]) + 1e-6), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Splits, LocalOptimizerMeanTest,
                         testing::Values(std::vector<double>{8}, std::vector<double>{4, 4},
                                         std::vector<double>{3, 5}, std::vector<double>{1, 2, 5}));

TEST(LocalOptimizerTest, StepsByRoundedGradients) {
  Contributions contributions({1});
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(1, 0));
  const float before = optimizer.weights()[1][0];
  contributions.gradients[0][1][0] = 1.0f / 3;
  contributions.buffers[0].dtype = kernels::DType::kBFloat16;
  contributions.EncodeAll();
  ASSERT_TRUE(optimizer.Step(contributions.list).applied);
  const double g = kernels::RoundTo(kernels::DType::kBFloat16, 1.0f / 3);
  EXPECT_NEAR(optimizer.weights()[1][0], before - kLr * g / (g + kEps), 1e-7);
}

TEST(LocalOptimizerTest, MultipliesTheLearningRateOfEveryGroup) {
  Contributions contributions({1});
  contributions.list[0].learning_rate_multiplier = 0;
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(1, 0));
  const std::vector<std::vector<float>> before = optimizer.weights();
  ASSERT_TRUE(optimizer.Step(contributions.list).applied);
  EXPECT_EQ(optimizer.weights(), before);
}

TEST(LocalOptimizerTest, SkipsAStepWithANonFiniteGradientAndChangesNothing) {
  Contributions contributions({3, 5});
  contributions.gradients[1][0][7] = std::numeric_limits<float>::quiet_NaN();
  contributions.EncodeAll();
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(2, 1));
  const std::vector<std::vector<float>> before = optimizer.weights();
  const kaon::StepRecord record = optimizer.Step(contributions.list);
  EXPECT_FALSE(record.applied);
  EXPECT_EQ(record.reason, "non-finite gradient of parameter matrix from rank 1");
  EXPECT_EQ(optimizer.weights(), before);
  EXPECT_EQ(optimizer.step(), 1u);
  EXPECT_EQ(optimizer.newton_schulz_calls()[0], 0u);
}

TEST(LocalOptimizerTest, ContinuesAfterASkipAsIfTheStepHadNotBeen) {
  Contributions poisoned({1});
  poisoned.gradients[0][1][0] = std::numeric_limits<float>::infinity();
  poisoned.EncodeAll();
  LocalOptimizer skipping = MakeOptimizer(TwoParameterJob(1, 1));
  LocalOptimizer straight = MakeOptimizer(TwoParameterJob(1, 1));
  skipping.Step(poisoned.list);
  skipping.Step(Contributions({1}, 2).list);
  straight.Step(Contributions({1}, 1).list);
  EXPECT_EQ(skipping.weights(), straight.weights());
}

TEST(LocalOptimizerTest, CountsOneNewtonSchulzCallPerMatrixAndAppliedStep) {
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(1, 1));
  for (uint64_t step = 1; step <= 3; ++step) optimizer.Step(Contributions({1}, step).list);
  EXPECT_EQ(optimizer.newton_schulz_calls(), (std::vector<uint64_t>{3, 0}));
}

TEST(LocalOptimizerTest, WeighsLossesByTokens) {
  Contributions contributions({3, 5, 7});
  contributions.list[0].loss = 1;
  contributions.list[1].loss = 2;
  LocalOptimizer optimizer = MakeOptimizer(TwoParameterJob(3, 1));
  EXPECT_DOUBLE_EQ(optimizer.Step(contributions.list).loss.value(), 13.0 / 8);
}

TEST(LocalOptimizerTest, RefusesWeightsThatDoNotFitTheJob) {
  kaon::JobDefinition job = TwoParameterJob(1, 1);
  job.parameters[1].shape = {6};
  const absl::Status status =
      LocalOptimizer::Create(job, kernels::CreateBackend({}).value(), RandomTensors(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter vector: 5 weights given"));
}

TEST(LocalOptimizerTest, RefusesAJobThatACoordinatorWouldRefuse) {
  kaon::JobDefinition job = TwoParameterJob(1, 1);
  job.groups[0].lr = -1;
  EXPECT_EQ(LocalOptimizer::Create(job, kernels::CreateBackend({}).value(), RandomTensors(1))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::train
