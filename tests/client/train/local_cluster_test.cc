#include "client/train/local_cluster.h"

#include <gtest/gtest.h>

#include <thread>

namespace kaon::train {
namespace {

constexpr int kWorldSize = 3;
constexpr int kSteps = 50;

LocalOptimizer MakeOptimizer() {
  kaon::JobDefinition job;
  job.name = "test";
  job.world_size = kWorldSize;
  job.parameters.resize(1);
  job.parameters[0].name = "w";
  job.parameters[0].shape = {2};
  job.groups.resize(1);
  job.groups[0].name = "adamw";
  job.groups[0].rule = kaon::Rule::kAdamW;
  job.groups[0].lr = 0.01;
  job.scalar_group = "adamw";
  return LocalOptimizer::Create(job, kernels::CreateBackend({}).value(), {{1, 2}}).value();
}

TensorBuffers GradientOf(int rank, int step) {
  TensorBuffers gradients;
  Encode({{static_cast<float>(rank + step), static_cast<float>(rank - 1)}}, &gradients);
  return gradients;
}

std::vector<StepContribution> ContributionsOf(const std::vector<TensorBuffers>& gradients,
                                              int step) {
  std::vector<StepContribution> contributions(kWorldSize);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    contributions[rank].step = step;
    contributions[rank].token_weight = rank + 1;
    contributions[rank].gradients = &gradients[rank];
  }
  return contributions;
}

TEST(LocalClusterTest, ThreadsGetTheWeightsOfOneOptimizer) {
  LocalOptimizer alone = MakeOptimizer();
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<TensorBuffers> gradients = {GradientOf(0, step), GradientOf(1, step),
                                                  GradientOf(2, step)};
    alone.Step(ContributionsOf(gradients, step));
  }
  LocalCluster cluster(MakeOptimizer(), kWorldSize);
  std::vector<std::thread> threads;
  std::vector<TensorBuffers> pulled(kWorldSize);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<TrainingSession> session = cluster.MakeSession(rank);
      for (int step = 1; step <= kSteps; ++step) {
        const TensorBuffers gradients = GradientOf(rank, step);
        StepContribution contribution;
        contribution.step = step;
        contribution.token_weight = rank + 1;
        contribution.gradients = &gradients;
        const absl::StatusOr<StepOutcome> outcome = session->Exchange(contribution);
        ASSERT_TRUE(outcome.ok());
        ASSERT_EQ(outcome->record.step, static_cast<uint64_t>(step));
        ASSERT_TRUE(session->Pull(step, &pulled[rank]).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TensorBuffers expected;
  Encode(alone.weights(), &expected);
  for (const TensorBuffers& weights : pulled) EXPECT_EQ(weights.tensors, expected.tensors);
}

// A contribution counts whole or not at all (T21). A rank that takes no part has no weight.
TEST(LocalClusterTest, LeavesOutWhoTakesNoPart) {
  LocalOptimizer alone = MakeOptimizer();
  const std::vector<TensorBuffers> gradients = {GradientOf(0, 1), GradientOf(1, 1),
                                                GradientOf(2, 1)};
  const std::vector<StepContribution> all = ContributionsOf(gradients, 1);
  alone.Step({all[0], all[2]});
  LocalCluster cluster(MakeOptimizer(), kWorldSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    threads.emplace_back([&, rank] {
      StepContribution contribution = all[rank];
      contribution.takes_part = rank != 1;
      EXPECT_TRUE(cluster.MakeSession(rank)->Exchange(contribution).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  TensorBuffers expected;
  Encode(alone.weights(), &expected);
  TensorBuffers pulled;
  ASSERT_TRUE(cluster.MakeSession(0)->Pull(1, &pulled).ok());
  EXPECT_EQ(pulled.tensors, expected.tensors);
}

TEST(LocalClusterTest, CountsPayloadBytes) {
  LocalCluster cluster(MakeOptimizer(), 1);
  const std::unique_ptr<TrainingSession> session = cluster.MakeSession(0);
  TensorBuffers gradients;
  gradients.dtype = kernels::DType::kBFloat16;
  Encode({{1, 2}}, &gradients);
  StepContribution contribution;
  contribution.step = 1;
  contribution.gradients = &gradients;
  ASSERT_TRUE(session->Exchange(contribution).ok());
  TensorBuffers weights;
  ASSERT_TRUE(session->Pull(1, &weights).ok());
  EXPECT_EQ(session->transferred().pushed, 4u);
  EXPECT_EQ(session->transferred().pulled, 8u);
}

}  // namespace
}  // namespace kaon::train
