#include "tests/integration/tiny_training.h"

#include <gtest/gtest.h>

#include <utility>

#include "client/wire/job_conversion.h"
#include "job/definition.h"

namespace kaon::testing {

using simulation::Gradient;
using simulation::InitialWeights;
using simulation::SerialReplay;
using simulation::Share;

JobDefinition PublicJob(const v1::JobDefinition& job) {
  v1::JobDescription description;
  *description.mutable_definition() = job;
  return client::FromProto(description).definition;
}

v1::StepRecord RecordOf(const v1::JobDefinition& job, const StepRecord& decided) {
  v1::StepRecord record;
  v1::StepBody& step = *record.mutable_plan()->mutable_step();
  step.set_step(decided.step);
  step.set_kind(v1::STEP_KIND_TRAIN);
  step.set_loss_scale(1);
  for (uint32_t rank = 0; rank < job.world_size(); ++rank) {
    v1::Member& member = *step.add_members();
    member.set_rank(rank);
    member.set_process_nonce(kNonce);
    member.set_token_weight(Share(rank, decided.step).token_weight);
    member.set_micro_batches(Share(rank, decided.step).micro_batches);
  }
  for (const v1::ParameterGroup& group : job.groups()) {
    step.add_rates()->set_learning_rate(group.lr());
  }
  record.mutable_decision()->set_outcome(decided.applied ? v1::OUTCOME_APPLY : v1::OUTCOME_SKIP);
  for (const GroupNorm& norm : decided.norms) {
    record.mutable_decision()->add_norms()->set_clip_factor(norm.clip_factor);
  }
  return record;
}

SerialReplay LoadedReplay(const v1::JobDefinition& job) {
  SerialReplay replay(job);
  v1::StepRecord load;
  load.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  load.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  replay.Apply(load);
  return replay;
}

std::vector<Future<Done>> OpenStep::Push(uint32_t parameter_id) {
  const std::vector<float>& gradient = gradients[parameter_id];
  std::vector<Future<Done>> accepted;
  for (uint32_t micro = 0; micro < micro_batches; ++micro) {
    accepted.push_back(
        step.Push(parameter_id, {gradient.data(), gradient.size(), DType::kFloat32}, micro));
  }
  return accepted;
}

bool OpenStep::PushAndWait(uint32_t first_parameter_id) {
  bool all = true;
  for (uint32_t id = first_parameter_id; id < gradients.size(); ++id) {
    if (gradients[id].empty()) continue;
    for (Future<Done>& accepted : Push(id)) all = accepted.Get().ok() && all;
  }
  return all;
}

void OpenStep::PushAll() {
  for (uint32_t id = static_cast<uint32_t>(gradients.size()); id-- > 0;) {
    if (!gradients[id].empty()) Push(id);
  }
}

Future<StepRecord> OpenStep::Finish() {
  FinishOptions finish;
  finish.loss = rank;
  return step.Finish(finish);
}

OpenStep BeginStep(const v1::JobDefinition& job, Worker& worker, uint64_t number, uint64_t nonce,
                   double more_weight) {
  const client::StepShare share = Share(worker.rank(), number);
  BeginOptions begin;
  begin.step = number;
  begin.token_weight = share.token_weight + more_weight;
  begin.micro_batches = share.micro_batches;
  Result<Step> step = worker.Begin(begin);
  EXPECT_TRUE(step.ok()) << step.status().ToString();
  std::vector<std::vector<float>> gradients(job.parameters_size());
  for (int id = 0; id < job.parameters_size(); ++id) {
    if (job.parameters(id).frozen()) continue;
    gradients[id] = Gradient(job, id, worker.rank(), nonce, number);
  }
  return {std::move(gradients), worker.rank(), share.micro_batches, std::move(step).value()};
}

StepRecord TrainStep(const v1::JobDefinition& job, Worker& worker, uint64_t number) {
  OpenStep step = BeginStep(job, worker, number);
  step.PushAll();
  Result<StepRecord> record = step.Finish().Get();
  EXPECT_TRUE(record.ok()) << record.status().ToString();
  return record.ok() ? *record : StepRecord();
}

void LoadWeights(const v1::JobDefinition& job, Worker& worker) {
  std::vector<std::vector<float>> weights;
  std::vector<TensorView> views;
  for (int id = 0; id < job.parameters_size(); ++id) weights.push_back(InitialWeights(job, id));
  for (const auto& values : weights) {
    views.push_back({values.data(), values.size(), DType::kFloat32});
  }
  const Result<Done> loaded = worker.LoadWeights(views).Get();
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
}

std::vector<std::vector<float>> PullAll(const v1::JobDefinition& job, Job& from, uint64_t step) {
  std::vector<std::vector<float>> weights;
  std::vector<PullTarget> targets;
  for (int id = 0; id < job.parameters_size(); ++id) {
    weights.emplace_back(job::NumElements(job.parameters(id)));
  }
  for (uint32_t id = 0; id < weights.size(); ++id) {
    targets.push_back({id, {weights[id].data(), weights[id].size(), DType::kFloat32}});
  }
  const Result<Done> pulled = from.Pull(step, targets).Get();
  EXPECT_TRUE(pulled.ok()) << pulled.status().ToString();
  return weights;
}

}  // namespace kaon::testing
