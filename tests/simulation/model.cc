#include "tests/simulation/model.h"

#include <glog/logging.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/rule_config.h"
#include "job/settings.h"
#include "kernels/reduce/digest.h"
#include "kernels/routing.h"
#include "tests/conformance/copied_buffers.h"
#include "tests/conformance/gradient_sum.h"

namespace kaon::simulation {

namespace {

constexpr uint64_t kPoisonedStep = 7;

// SplitMix64 is fast to seed, unlike most generators; each chunk needs a new one.
uint64_t Next(uint64_t& state) {
  uint64_t mixed = state += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

std::vector<float> Draw(uint64_t seed, uint64_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    // Sums of these round, so that their order shows.
    value = static_cast<float>(static_cast<int64_t>(Next(seed) % 2001) - 1000) / 251.0f;
  }
  return values;
}

std::vector<uint64_t> Shape(const v1::ParameterSpec& parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

kernels::RuleConfig RuleOf(const v1::RegisterBody& registration, uint32_t parameter_id) {
  const int id = static_cast<int>(parameter_id);
  const v1::ParameterPlacement& placement = registration.placement().parameters(id);
  const v1::JobDefinition& job = registration.definition();
  return job::RuleConfigOf(job.groups(job::GroupIndex(job, placement.group())), job.parameters(id),
                           placement);
}

void AddParameter(const char* name, std::vector<uint64_t> shape, bool frozen,
                  v1::JobDefinition& job) {
  v1::ParameterSpec* parameter = job.add_parameters();
  parameter->set_name(name);
  for (uint64_t dimension : shape) parameter->add_shape(dimension);
  parameter->set_dtype(v1::DTYPE_FLOAT32);
  parameter->set_frozen(frozen);
}

}  // namespace

v1::JobDefinition TinyJob(uint32_t world_size) {
  v1::JobDefinition job;
  job.set_name("tiny");
  AddParameter("embed.weight", {3, 4}, false, job);
  AddParameter("hidden.weight", {6, 4}, false, job);
  AddParameter("hidden.bias", {6}, false, job);
  AddParameter("table", {5}, true, job);
  AddParameter("scale", {1}, false, job);
  v1::ParameterGroup* muon = job.add_groups();
  muon->set_name("muon");
  muon->set_rule(v1::RULE_MUON);
  muon->set_lr(0.02);
  v1::ParameterGroup* adamw = job.add_groups();
  adamw->set_name("adamw");
  adamw->set_rule(v1::RULE_ADAMW);
  adamw->set_lr(0.001);
  adamw->set_weight_decay(0.1);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  job.set_max_grad_norm(1);
  job.set_world_size(world_size);
  return job;
}

std::vector<float> InitialWeights(const v1::JobDefinition& job, uint32_t parameter_id) {
  return Draw(parameter_id + 1, job::NumElements(job.parameters(parameter_id)));
}

std::vector<float> Gradient(const v1::JobDefinition& job, uint32_t parameter_id, uint32_t rank,
                            uint64_t process_nonce, uint64_t step) {
  uint64_t mixed = 0;
  for (const uint64_t part : {uint64_t{parameter_id}, uint64_t{rank}, process_nonce, step}) {
    mixed ^= part;
    mixed = Next(mixed);
  }
  std::vector<float> gradient = Draw(mixed, job::NumElements(job.parameters(parameter_id)));
  if (step == kPoisonedStep && rank == 0) gradient[0] = std::numeric_limits<float>::quiet_NaN();
  return gradient;
}

client::StepShare Share(uint32_t rank, uint64_t step) {
  client::StepShare share;
  share.step = step;
  share.token_weight = step == 0 ? 1 : 3 + rank;
  share.micro_batches = step == 0 ? 1 : 1 + rank % 2;
  return share;
}

std::vector<kernels::StateSlot> SlotsOf(const v1::RegisterBody& registration,
                                        uint32_t parameter_id) {
  const v1::ParameterSpec& parameter =
      registration.definition().parameters(static_cast<int>(parameter_id));
  if (parameter.frozen()) return {};
  return kernels::StateSlots(RuleOf(registration, parameter_id), Shape(parameter));
}

SerialReplay::SerialReplay(const v1::JobDefinition& job) : job_(job) {
  state_.weights.resize(job.parameters_size());
  state_.slots.resize(job.parameters_size());
  state_.updates.resize(job.parameters_size());
  kernels::BackendOptions options;
  options.gemm = "reference";
  auto backend = kernels::CreateBackend(options);
  CHECK(backend.ok()) << backend.status();
  backend_ = std::move(*backend);
  auto body = job::Resolve(job);
  CHECK(body.ok()) << body.status();
  state_.body = *std::move(body);
  for (int id = 0; id < job.parameters_size(); ++id) {
    for (const kernels::StateSlot& slot : SlotsOf(state_.body, id)) {
      state_.slots[id].emplace_back(slot.num_bytes);
    }
  }
}

uint64_t SerialReplay::StateDigest() const {
  uint64_t digest = 0;
  for (uint32_t id = 0; state_.registered && id < state_.weights.size(); ++id) {
    digest += kernels::TensorDigest(id, kernels::kWeightSlot, state_.weights[id]);
    for (uint32_t k = 0; k < state_.slots[id].size(); ++k) {
      digest += kernels::TensorDigester(id, k + 1).OfBytes(state_.slots[id][k], 0);
    }
    digest += kernels::FactDigest(id, kernels::kUpdatesSlot, state_.updates[id]);
  }
  return digest;
}

std::vector<float> SerialReplay::ReducedGradient(const v1::StepBody& step, uint32_t parameter_id) {
  kernels::GradientSum sum(*backend_,
                           std::vector<float>(job::NumElements(job_.parameters(parameter_id))));
  double total_weight = 0;
  uint32_t contribution = 0;
  for (const v1::Member& member : step.members()) {
    const std::vector<float> gradient =
        Gradient(job_, parameter_id, member.rank(), member.process_nonce(), step.step());
    for (uint32_t micro = 0; micro < member.micro_batches(); ++micro) {
      sum.Fold(kernels::DType::kFloat32, kernels::ConstRegion(gradient).host_bytes(),
               static_cast<float>(member.token_weight()), contribution, contribution == 0);
      ++contribution;
    }
    total_weight += member.token_weight();
  }
  sum.accumulation().FinishMean({.total_weight = static_cast<float>(total_weight),
                                 .loss_scale = static_cast<float>(step.loss_scale())});
  return sum.Floats();
}

uint64_t SerialReplay::GradientDigest(const v1::StepBody& step, uint32_t parameter_id) {
  return kernels::TensorDigest(parameter_id, kernels::kGradientSlot,
                               step.kind() == v1::STEP_KIND_LOAD_WEIGHTS
                                   ? InitialWeights(job_, parameter_id)
                                   : ReducedGradient(step, parameter_id));
}

void SerialReplay::Update(const v1::StepRecord& record, uint32_t parameter_id) {
  const v1::ParameterSpec& parameter = job_.parameters(parameter_id);
  if (parameter.frozen()) return;
  const v1::ParameterPlacement& placement =
      state_.body.placement().parameters(static_cast<int>(parameter_id));
  const int group = job::GroupIndex(state_.body.definition(), placement.group());
  const kernels::RuleConfig rule = RuleOf(state_.body, parameter_id);
  const std::vector<uint64_t> shape = Shape(parameter);
  std::vector<kernels::Region> slots;
  for (std::vector<std::byte>& slot : state_.slots[parameter_id])
    slots.emplace_back(absl::MakeSpan(slot));
  const std::vector<float> gradient = ReducedGradient(record.plan().step(), parameter_id);
  kernels::UpdateScalars scalars;
  scalars.lr = record.plan().step().rates(group).learning_rate();
  scalars.clip_factor = record.decision().norms(group).clip_factor();
  scalars.t = ++state_.updates[parameter_id];
  std::vector<float>& weights = state_.weights[parameter_id];
  kernels::UpdateCopied(*backend_, rule, scalars, shape, {gradient, weights, weights, slots});
}

void SerialReplay::Apply(const v1::StepRecord& record) {
  state_.registered = true;
  if (record.plan().has_group_change()) {
    job::ApplyGroupChange(record.plan().group_change(), state_.body);
  }
  if (!record.plan().has_step() || record.decision().outcome() != v1::OUTCOME_APPLY) return;
  for (int id = 0; id < job_.parameters_size(); ++id) {
    if (record.plan().step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
      state_.weights[id] = InitialWeights(job_, id);
    } else {
      Update(record, id);
    }
  }
}

}  // namespace kaon::simulation
