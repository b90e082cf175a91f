#include "tests/server/checkpoint/tiny_checkpoint.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "proto/status_macros.h"
#include "server/checkpoint/part_writer.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

void AddParameter(v1::JobDefinition& job, const std::string& name,
                  const std::vector<uint64_t>& shape, const std::string& group) {
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name(name);
  for (const uint64_t dimension : shape) parameter.add_shape(dimension);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  parameter.set_group(group);
  parameter.set_frozen(group.empty());
}

v1::ParameterGroup& AddGroup(v1::JobDefinition& job, const std::string& name, v1::Rule rule) {
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name(name);
  group.set_rule(rule);
  group.set_lr(0.01);
  return group;
}

}  // namespace

v1::RegisterBody TinyRegistration() {
  v1::JobDefinition job;
  job.set_name("tiny");
  job.set_world_size(1);
  AddGroup(job, "muon", v1::RULE_MUON).set_momentum_dtype(v1::STATE_DTYPE_INT8);
  AddGroup(job, "adamw", v1::RULE_ADAMW).mutable_adamw()->set_amsgrad(true);
  v1::ParameterGroup& sgd = AddGroup(job, "sgd", v1::RULE_SGD);
  sgd.mutable_sgd()->set_momentum(0.9);
  sgd.set_momentum_dtype(v1::STATE_DTYPE_BFLOAT16);
  AddParameter(job, "h.w", {8, 12}, "muon");
  AddParameter(job, "h.b", {70}, "adamw");
  AddParameter(job, "o.w", {4, 6}, "sgd");
  AddParameter(job, "table", {5}, "");
  v1::RegisterBody registration = job::Resolve(job).value();
  registration.mutable_placement()->set_num_shards(2);
  return registration;
}

CheckpointFacts TinyFacts(const std::string& id, uint64_t position) {
  CheckpointFacts facts;
  facts.id = id;
  facts.registration = TinyRegistration();
  v1::StepPlan& plan = *facts.last_record.mutable_plan();
  plan.set_job("tiny");
  plan.set_timeline(1);
  plan.set_position(position);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_step(position - 2);
  facts.last_record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  facts.step = position - 2;
  return facts;
}

std::string TinyBytes(uint64_t position, uint32_t parameter_id, const std::string& role,
                      v1::StateDType dtype, uint64_t first, uint64_t count, unsigned char mask) {
  const uint64_t begin = StateBytes(dtype, first);
  std::string bytes(StateBytes(dtype, first + count) - begin, '\0');
  for (uint64_t i = 0; i < bytes.size(); ++i) {
    // Each byte differs from its neighbours, and from those of other tensors and positions.
    const uint64_t mixed = (begin + i + 1) * 0x9e3779b97f4a7c15u + position * 0xbf58476d1ce4e5b9u +
                           parameter_id * 0x94d049bb133111ebu + role.size() * 131 + role.back();
    bytes[i] = static_cast<char>((mixed >> 56) & mask);
  }
  return bytes;
}

std::vector<v1::CheckpointTensor> TinyTensors(uint32_t shard, uint32_t num_shards, uint64_t run) {
  std::vector<v1::CheckpointTensor> tensors;
  uint32_t next_shard = 0;
  const std::vector<StateTensor> states = StateTensorsOf(TinyRegistration()).value();
  for (const StateTensor& state : states) {
    for (uint64_t first = 0; first < state.num_elements; first += run) {
      if (next_shard++ % num_shards != shard) continue;
      v1::CheckpointTensor& tensor = tensors.emplace_back();
      tensor.set_parameter_id(state.parameter_id);
      tensor.set_role(state.role);
      tensor.set_dtype(state.dtype);
      tensor.set_momentum_form(state.momentum_form);
      tensor.set_first_element(first);
      tensor.set_num_elements(std::min(run, state.num_elements - first));
    }
  }
  return tensors;
}

absl::StatusOr<v1::CheckpointPart> WritePart(CheckpointDirectory& directory, const std::string& id,
                                             uint64_t position, uint32_t shard,
                                             const TinyShards& shards) {
  PartWriter::Options options;
  options.id = id;
  options.attempt = shards.attempt;
  options.part.set_shard(shard);
  options.part.set_num_shards(shards.num_shards);
  options.part.set_job("tiny");
  options.part.set_timeline(shards.timeline);
  options.part.set_position(position);
  options.part.set_weights_digest(1000 * position + shard);
  options.part.set_state_digest(UINT64_MAX - shard);
  const v1::RegisterBody registration = TinyRegistration();
  for (uint32_t id = shard; id < 4; id += shards.num_shards) {
    v1::CheckpointParameter& counted = *options.part.add_parameters();
    counted.set_parameter_id(id);
    counted.set_updates_applied(position - 2);
  }
  options.written_by.set_build("test");
  options.written_by.set_backend("cpu");
  options.written_by.set_device_class("x86-64");
  options.max_tensors_per_file = shards.max_tensors_per_file;
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                        PartWriter::Create(directory, registration.definition(), options,
                                           TinyTensors(shard, shards.num_shards, shards.run)));
  while (const v1::CheckpointTensor* tensor = writer->tensor()) {
    std::string bytes = TinyBytes(position, tensor->parameter_id(), tensor->role(), tensor->dtype(),
                                  tensor->first_element(), tensor->num_elements());
    if (tensor->role() == shards.role) bytes.replace(0, shards.begin.size(), shards.begin);
    KAON_RETURN_IF_ERROR(writer->Append(absl::string_view(bytes).substr(0, bytes.size() / 3)));
    KAON_RETURN_IF_ERROR(writer->Append(absl::string_view(bytes).substr(bytes.size() / 3)));
  }
  return writer->Finish();
}

absl::StatusOr<v1::CheckpointManifest> WriteCheckpoint(CheckpointDirectory& directory,
                                                       const std::string& id, uint64_t position,
                                                       const TinyShards& shards) {
  std::vector<v1::CheckpointPart> parts;
  for (uint32_t shard = 0; shard < shards.num_shards; ++shard) {
    KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part,
                          WritePart(directory, id, position, shard, shards));
    parts.push_back(std::move(part));
  }
  CheckpointFacts facts = TinyFacts(id, position);
  facts.last_record.mutable_plan()->set_timeline(shards.timeline);
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, BuildManifest(facts, parts));
  KAON_RETURN_IF_ERROR(directory.Commit(manifest));
  return manifest;
}

}  // namespace kaon::checkpoint
