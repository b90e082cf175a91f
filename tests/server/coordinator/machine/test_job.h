// A small job for the coordinator's tests: two matrices for Muon, two biases and one frozen
// parameter.
#ifndef KAON_TESTS_SERVER_COORDINATOR_MACHINE_TEST_JOB_H_
#define KAON_TESTS_SERVER_COORDINATOR_MACHINE_TEST_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kaon/v1/parameters.pb.h"

namespace kaon::coordinator {

inline void AddParameter(v1::JobDefinition& job, const std::string& name,
                         const std::vector<uint64_t>& shape) {
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name(name);
  for (uint64_t dimension : shape) parameter.add_shape(dimension);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
}

inline v1::JobDefinition TestJob(uint32_t world_size = 2) {
  v1::JobDefinition job;
  job.set_name("tiny");
  AddParameter(job, "layer0.w", {8, 4});
  AddParameter(job, "layer0.b", {8});
  AddParameter(job, "layer1.w", {4, 8});
  AddParameter(job, "layer1.b", {4});
  AddParameter(job, "table", {3});
  job.mutable_parameters(4)->set_frozen(true);
  v1::ParameterGroup& muon = *job.add_groups();
  muon.set_name("muon");
  muon.set_rule(v1::RULE_MUON);
  muon.set_lr(0.02);
  v1::ParameterGroup& adamw = *job.add_groups();
  adamw.set_name("adamw");
  adamw.set_rule(v1::RULE_ADAMW);
  adamw.set_lr(0.001);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  job.set_max_grad_norm(1.0);
  job.set_world_size(world_size);
  return job;
}

}  // namespace kaon::coordinator

#endif  // KAON_TESTS_SERVER_COORDINATOR_MACHINE_TEST_JOB_H_
