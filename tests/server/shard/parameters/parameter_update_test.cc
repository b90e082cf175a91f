#include "server/shard/parameters/parameter_update.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

// An update uses the parameter's own count ([A1]), which counts applied updates only ([M6]).
TEST(ParameterUpdateTest, TakesRateMultiplierFactorAndTheParametersOwnCount) {
  StoredParameter parameter;
  parameter.id = 7;
  parameter.group = 1;
  parameter.updates_applied = 4;
  v1::StepBody step;
  step.add_rates()->set_learning_rate(3);
  step.add_rates()->set_learning_rate(0.5);
  v1::ParameterPlacement placement;
  placement.set_lr_multiplier(0.25);
  const ParameterUpdate update(parameter, step, placement, 0.75, {});
  EXPECT_EQ(update.scalars().lr, 0.125);
  EXPECT_EQ(update.scalars().clip_factor, 0.75);
  EXPECT_EQ(update.scalars().t, 5);
  EXPECT_EQ(update.scalars().parameter_id, 7u);
}

TEST(ParameterUpdateTest, StepsTheNewestWeights) {
  const std::vector<float> w = {0.5, -1, 2, 0.25, -0.5, 1};
  DrivenShard trained;
  trained.Load();
  trained.Train(1, {w, {1, -2, 3, -4}});
  DrivenShard shard;
  shard.Load();
  const StoredParameter& parameter = shard.core().parameters()->Get(0);
  v1::ParameterPlacement placement;
  placement.set_lr_multiplier(1);
  kernels::Backend& backend = shard.memory().backend();
  const kernels::Tensor gradient(backend, w);
  const ParameterUpdate update(parameter, TrainPlan(1, 1, 1).step(), placement, 1,
                               gradient.region());
  const tier::UnitUpdatePin pinned = *shard.core().publisher().BeginWrite(0);
  kernels::Update run = update.ForBackend(kernels::UpdatePart::kAll, pinned);
  backend.RunUpdates(absl::MakeSpan(&run, 1));
  EXPECT_EQ(shard.memory().Floats(pinned.next_weights()), trained.Read(0, 1));
  EXPECT_EQ(run.result.weights_digest, trained.core().parameters()->Get(0).weights_digest);
  EXPECT_EQ(run.result.slots_digest, trained.core().parameters()->Get(0).slots_digest);
}

TEST(ParameterUpdateTest, UpdatesSideBySideAreThoseOneAfterTheOther) {
  // The threads are the CPU backend's.
  if (ShardMemory::is_device()) return;
  const std::vector<std::vector<float>> gradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};
  DrivenShard trained;
  trained.Load();
  trained.Train(1, gradients);
  DrivenShard shard;
  shard.Load();
  kernels::BackendOptions options = ShardMemory::Reference();
  options.threads = 2;
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend(options);
  v1::ParameterPlacement placement;
  placement.set_lr_multiplier(1);
  const std::vector<StoredParameter>& parameters = shard.core().parameters()->parameters();
  const v1::StepPlan plan = TrainPlan(1, 1, 1);
  std::vector<DecidedUpdate> updates;
  for (uint32_t id : {0, 1}) {
    const ParameterUpdate update(parameters[id], plan.step(), placement, 1,
                                 kernels::ConstRegion(gradients[id]));
    updates.push_back(
        {nullptr, update, *shard.core().publisher().BeginWrite(id), std::nullopt, {}});
  }
  RunUpdates(*backend, absl::MakeSpan(updates));
  for (uint32_t id : {0, 1}) {
    const StoredParameter& expected = trained.core().parameters()->Get(id);
    EXPECT_EQ(updates[id].result.weights_digest, expected.weights_digest) << id;
    EXPECT_EQ(updates[id].result.slots_digest, expected.slots_digest) << id;
  }
}

}  // namespace
}  // namespace kaon::shard
