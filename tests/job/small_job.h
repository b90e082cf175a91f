// A job of one matrix and one vector, the smallest that has both routes. Used by tests only.
#ifndef KAON_TESTS_JOB_SMALL_JOB_H_
#define KAON_TESTS_JOB_SMALL_JOB_H_

#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

inline v1::JobDefinition SmallJob() {
  v1::JobDefinition job;
  job.set_name("small");
  job.set_world_size(2);
  job.set_max_grad_norm(1);
  v1::ParameterGroup& matrices = *job.add_groups();
  matrices.set_name("matrices");
  matrices.set_rule(v1::RULE_MUON);
  matrices.set_lr(0.02);
  v1::ParameterGroup& scalars = *job.add_groups();
  scalars.set_name("scalars");
  scalars.set_rule(v1::RULE_ADAMW);
  scalars.set_lr(0.001);
  job.set_matrix_group("matrices");
  job.set_scalar_group("scalars");
  v1::ParameterSpec& hidden = *job.add_parameters();
  hidden.set_name("h.weight");
  hidden.add_shape(4);
  hidden.add_shape(6);
  hidden.set_dtype(v1::DTYPE_FLOAT32);
  v1::ParameterSpec& bias = *job.add_parameters();
  bias.set_name("h.bias");
  bias.add_shape(6);
  bias.set_dtype(v1::DTYPE_FLOAT32);
  return job;
}

}  // namespace kaon::job

#endif  // KAON_TESTS_JOB_SMALL_JOB_H_
