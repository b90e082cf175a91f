// Registrations, plans and votes for the tests of decide(). Pure functions; any thread.
#ifndef KAON_TESTS_JOB_DECIDE_FIXTURE_H_
#define KAON_TESTS_JOB_DECIDE_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "job/decide.h"
#include "job/resolve.h"
#include "proto/decide_version.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::job {

// Returns the resolved job with its parameters dealt out over the shards in turn.
inline v1::RegisterBody Register(const v1::JobDefinition& job, int num_shards) {
  auto body = Resolve(job);
  EXPECT_TRUE(body.ok()) << body.status();
  for (v1::ParameterPlacement& row : *body->mutable_placement()->mutable_parameters()) {
    row.set_shard(row.parameter_id() % static_cast<uint32_t>(num_shards));
  }
  body->mutable_placement()->set_num_shards(static_cast<uint32_t>(num_shards));
  return *body;
}

// Returns a plan of step 7 with two workers of token weights 1 and 3.
inline v1::StepPlan TrainPlan() {
  v1::StepPlan plan;
  plan.set_position(9);
  plan.set_decide_version(proto::kDecideVersion);
  plan.mutable_step()->set_step(7);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_loss_scale(8);
  for (uint32_t rank : {0, 1}) {
    v1::Member& member = *plan.mutable_step()->add_members();
    member.set_rank(rank);
    member.set_token_weight(rank == 0 ? 1 : 3);
  }
  return plan;
}

// Returns the votes of all shards when parameter i has sum of squares sums[i].
inline std::vector<v1::Prepared> Votes(const v1::RegisterBody& job,
                                       const std::vector<double>& sums) {
  std::vector<v1::Prepared> votes(job.placement().num_shards());
  for (int id = 0; id < job.definition().parameters_size(); ++id) {
    if (job.definition().parameters(id).frozen()) continue;
    v1::ParameterSums& row = *votes[job.placement().parameters(id).shard()].add_sums();
    row.set_parameter_id(id);
    row.set_sum_squares(sums[id]);
    row.set_num_elements(1);
  }
  return votes;
}

inline v1::ParameterSums& SumsOf(std::vector<v1::Prepared>& votes, uint32_t id) {
  for (v1::Prepared& vote : votes) {
    for (v1::ParameterSums& row : *vote.mutable_sums()) {
      if (row.parameter_id() == id) return row;
    }
  }
  ADD_FAILURE() << "no sums of parameter " << id;
  return *votes[0].add_sums();
}

// Returns the decision on parameters with these sums of squares, on two shards.
inline v1::StepDecision DecideOn(const v1::JobDefinition& definition,
                                 const std::vector<double>& sums,
                                 const v1::StepRecord* previous = nullptr) {
  const v1::RegisterBody job = Register(definition, 2);
  return Decide(job, TrainPlan(), Votes(job, sums), previous);
}

// Returns a preceding record with this decision.
inline v1::StepRecord RecordWith(const v1::StepDecision& decision) {
  v1::StepRecord record;
  *record.mutable_decision() = decision;
  return record;
}

}  // namespace kaon::job

#endif  // KAON_TESTS_JOB_DECIDE_FIXTURE_H_
