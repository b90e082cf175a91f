#include "tests/server/shard/agreement/plans.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "job/settings.h"
#include "proto/decide_version.h"

namespace kaon::shard {

namespace {

v1::StepPlan EmptyPlan(uint64_t position, uint64_t counter, uint64_t round) {
  v1::StepPlan plan;
  plan.set_job("gpt2");
  plan.set_timeline(1);
  plan.set_position(position);
  *plan.mutable_ballot() = MakeBallot(counter);
  plan.set_round(round);
  plan.set_decide_version(proto::kDecideVersion);
  plan.set_config_revision(position > 1 ? 1 : 0);
  return plan;
}

void AddMember(uint32_t rank, v1::StepBody* step) {
  v1::Member* member = step->add_members();
  member->set_rank(rank);
  *member->mutable_attempt()->mutable_ballot() = MakeBallot(1);
  member->mutable_attempt()->set_number(rank + 1);
  member->set_process_nonce(100 + rank);
  member->set_token_weight(1);
  member->set_micro_batches(1);
}

void AddRates(v1::StepBody* step) {
  const v1::RegisterBody registration = MakeRegistration();
  for (const v1::ParameterGroup& group : registration.definition().groups()) {
    v1::GroupRate* rate = step->add_rates();
    rate->set_group(group.name());
    rate->set_learning_rate(group.lr());
  }
}

void AddParameter(const std::string& name, std::vector<uint64_t> shape, bool frozen,
                  v1::JobDefinition* job) {
  v1::ParameterSpec* spec = job->add_parameters();
  spec->set_name(name);
  for (uint64_t size : shape) spec->add_shape(size);
  spec->set_dtype(v1::DTYPE_FLOAT32);
  spec->set_frozen(frozen);
}

}  // namespace

v1::Ballot MakeBallot(uint64_t counter) {
  v1::Ballot ballot;
  ballot.set_counter(counter);
  ballot.set_incarnation_high(counter * 11);
  ballot.set_incarnation_low(counter * 13);
  return ballot;
}

v1::RegisterBody MakeRegistration() {
  v1::JobDefinition job;
  job.set_name("gpt2");
  v1::ParameterGroup* matrices = job.add_groups();
  matrices->set_name("matrices");
  matrices->set_rule(v1::RULE_MUON);
  // The files under golden_entries were written with this dtype.
  matrices->mutable_muon()->set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_FLOAT32);
  matrices->set_lr(0.02);
  v1::ParameterGroup* scalars = job.add_groups();
  scalars->set_name("scalars");
  scalars->set_rule(v1::RULE_ADAMW);
  scalars->set_lr(0.001);
  const char* memory = std::getenv("KAON_TEST_MEMORY");
  if (memory != nullptr && std::string(memory) == "nvme") {
    for (v1::ParameterGroup& group : *job.mutable_groups()) group.set_tier(v1::TIER_NVME);
  }
  job.set_matrix_group("matrices");
  job.set_scalar_group("scalars");
  job.set_world_size(2);
  AddParameter("w", {2, 3}, false, &job);
  AddParameter("b", {4}, false, &job);
  AddParameter("f", {5}, true, &job);
  v1::RegisterBody registration = *job::Resolve(job);
  registration.mutable_placement()->set_num_shards(1);
  return registration;
}

v1::StepPlan RegistrationPlan(uint64_t counter, uint64_t round) {
  v1::StepPlan plan = EmptyPlan(1, counter, round);
  *plan.mutable_registration() = MakeRegistration();
  return plan;
}

v1::StepPlan LoadPlan(uint64_t counter, uint64_t round) {
  v1::StepPlan plan = EmptyPlan(2, counter, round);
  plan.mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  plan.mutable_step()->set_loss_scale(1);
  AddMember(0, plan.mutable_step());
  AddRates(plan.mutable_step());
  return plan;
}

v1::StepPlan TrainPlan(uint64_t step, uint64_t counter, uint64_t round) {
  v1::StepPlan plan = EmptyPlan(step + 2, counter, round);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_step(step);
  plan.mutable_step()->set_loss_scale(1);
  AddMember(0, plan.mutable_step());
  AddMember(1, plan.mutable_step());
  AddRates(plan.mutable_step());
  return plan;
}

v1::StepPlan GroupChangePlan(uint64_t position, double lr, uint64_t counter, uint64_t round) {
  v1::StepPlan plan = EmptyPlan(position, counter, round);
  v1::GroupSetting setting;
  setting.set_field("lr");
  setting.set_value(absl::StrCat(lr));
  *plan.mutable_group_change() =
      *job::MakeGroupChange(MakeRegistration(), "scalars", {setting}, position);
  return plan;
}

v1::StepPlan DeletionPlan(uint64_t position, uint64_t counter, uint64_t round) {
  v1::StepPlan plan = EmptyPlan(position, counter, round);
  plan.mutable_job_deletion()->set_request_id(7);
  return plan;
}

v1::StepRecord Applying(const v1::StepPlan& plan) {
  v1::StepRecord record;
  *record.mutable_plan() = plan;
  record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  record.mutable_decision()->set_next_loss_scale(1);
  if (plan.has_step()) {
    for (const v1::GroupRate& rate : plan.step().rates()) {
      v1::GroupNorm* norm = record.mutable_decision()->add_norms();
      norm->set_group(rate.group());
      norm->set_clip_factor(1);
    }
    v1::NormGroupNorm* main = record.mutable_decision()->add_norm_groups();
    main->set_norm_group("main");
    main->set_clip_factor(1);
  }
  return record;
}

v1::StepRecord Skipping(const v1::StepPlan& plan) {
  v1::StepRecord record;
  *record.mutable_plan() = plan;
  record.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  record.mutable_decision()->set_reason("non-finite gradient of parameter w from rank 0");
  record.mutable_decision()->set_next_loss_scale(1);
  return record;
}

}  // namespace kaon::shard
