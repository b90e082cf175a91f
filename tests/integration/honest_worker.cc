#include "tests/integration/honest_worker.h"

#include <gtest/gtest.h>

#include "client/wire/job_conversion.h"
#include "job/definition.h"
#include "tests/simulation/model.h"

namespace kaon {

HonestWorker::HonestWorker(const testing::InProcessCluster& cluster, const v1::JobDefinition& job)
    : job_(job), client_(cluster.Connect()) {
  v1::JobDescription description;
  *description.mutable_definition() = job;
  registered_.emplace(client_.Register(client::FromProto(description).definition).value());
  worker_.emplace(registered_->Join(0).value());
  std::vector<TensorView> views;
  for (int id = 0; id < job.parameters_size(); ++id) {
    tensors_.push_back(simulation::InitialWeights(job, id));
    views.push_back({tensors_.back().data(), tensors_.back().size(), DType::kFloat32});
  }
  EXPECT_TRUE(worker_->LoadWeights(views).Get().ok());
}

Future<StepRecord> HonestWorker::PushStep() {
  const client::StepShare share = simulation::Share(0, 1);
  step_.emplace(worker_->Begin({1, share.token_weight, share.micro_batches, 1}).value());
  for (int id = 0; id < job_.parameters_size(); ++id) {
    if (job_.parameters(id).frozen()) continue;
    tensors_[id] = simulation::Gradient(job_, id, 0, 0, 1);
    for (uint32_t micro = 0; micro < share.micro_batches; ++micro) {
      static_cast<void>(
          step_->Push(id, {tensors_[id].data(), tensors_[id].size(), DType::kFloat32}, micro));
    }
  }
  return step_->Finish();
}

std::vector<std::vector<float>> HonestWorker::PullStep() {
  std::vector<std::vector<float>> weights;
  std::vector<PullTarget> targets;
  for (int id = 0; id < job_.parameters_size(); ++id) {
    weights.emplace_back(job::NumElements(job_.parameters(id)));
  }
  for (uint32_t id = 0; id < weights.size(); ++id) {
    targets.push_back({id, {weights[id].data(), weights[id].size(), DType::kFloat32}});
  }
  EXPECT_TRUE(registered_->Pull(1, targets).Get().ok());
  return weights;
}

std::vector<std::vector<float>> WeightsOfStepOne(const v1::JobDefinition& job,
                                                 const StepRecord& decided) {
  simulation::SerialReplay replay(job);
  v1::StepRecord load;
  load.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  load.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  replay.Apply(load);
  v1::StepRecord record;
  v1::StepBody& step = *record.mutable_plan()->mutable_step();
  step.set_step(1);
  step.set_kind(v1::STEP_KIND_TRAIN);
  step.set_loss_scale(1);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::Member& member = *step.add_members();
    member.set_rank(rank);
    member.set_token_weight(simulation::Share(rank, 1).token_weight);
    member.set_micro_batches(simulation::Share(rank, 1).micro_batches);
  }
  for (const v1::ParameterGroup& group : job.groups()) {
    step.add_rates()->set_learning_rate(group.lr());
  }
  record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  for (const GroupNorm& norm : decided.norms) {
    record.mutable_decision()->add_norms()->set_clip_factor(norm.clip_factor);
  }
  replay.Apply(record);
  return replay.weights();
}

}  // namespace kaon
