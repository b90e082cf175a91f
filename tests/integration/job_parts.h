// Parts of the job definitions that integration tests train, and the comparison of their results.
// Used by tests only; one thread.
#ifndef KAON_TESTS_INTEGRATION_JOB_PARTS_H_
#define KAON_TESTS_INTEGRATION_JOB_PARTS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "kaon/v1/parameters.pb.h"
#include "tests/integration/trained_job.h"

namespace kaon::testing {

inline v1::ParameterSpec& AddParameter(v1::JobDefinition& job, const std::string& name,
                                       const std::vector<uint64_t>& shape,
                                       const std::string& group = "") {
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name(name);
  for (uint64_t dimension : shape) parameter.add_shape(dimension);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  parameter.set_group(group);
  return parameter;
}

inline v1::ParameterGroup& AddGroup(v1::JobDefinition& job, const std::string& name, v1::Rule rule,
                                    double lr) {
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name(name);
  group.set_rule(rule);
  group.set_lr(lr);
  group.set_weight_decay(0.1);
  return group;
}

inline void SetSchedule(v1::ScheduleKind kind, uint64_t warmup, uint64_t total, uint64_t decay,
                        v1::ParameterGroup& group) {
  v1::Schedule& schedule = *group.mutable_schedule();
  schedule.set_kind(kind);
  schedule.set_warmup_steps(warmup);
  schedule.set_total_steps(total);
  schedule.set_decay_steps(decay);
  schedule.set_final_factor(0.1);
}

inline void ExpectEqual(const StepRecord& a, const StepRecord& b) {
  EXPECT_EQ(a.applied, b.applied) << a.step;
  EXPECT_EQ(a.reason, b.reason) << a.step;
  EXPECT_EQ(a.grad_norm, b.grad_norm) << a.step;
  EXPECT_EQ(a.live_norm, b.live_norm) << a.step;
  EXPECT_EQ(a.loss, b.loss) << a.step;
  EXPECT_EQ(a.next_loss_scale, b.next_loss_scale) << a.step;
  EXPECT_EQ(a.applied_updates, b.applied_updates) << a.step;
  ASSERT_EQ(a.norm_groups.size(), b.norm_groups.size()) << a.step;
  for (size_t i = 0; i < a.norm_groups.size(); ++i) {
    EXPECT_EQ(a.norm_groups[i].norm, b.norm_groups[i].norm) << a.step;
    EXPECT_EQ(a.norm_groups[i].clip_factor, b.norm_groups[i].clip_factor) << a.step;
  }
}

// Expects copies to have the weights of their originals, bit for bit.
inline void ExpectCopiesEqual(const v1::JobDefinition& job, const TrainedJob& trained) {
  for (int copy = 0; copy < job.parameters_size(); ++copy) {
    for (int id = 0; id < job.parameters_size(); ++id) {
      if (job.parameters(id).name() != job.parameters(copy).tied_to()) continue;
      EXPECT_EQ(trained.weights[copy], trained.weights[id]) << job.parameters(copy).name();
    }
  }
}

// Compares weights and decisions bit for bit; names the parameters that differ.
inline void ExpectEqual(const v1::JobDefinition& job, const TrainedJob& service,
                        const TrainedJob& expected) {
  ASSERT_EQ(service.weights.size(), expected.weights.size());
  for (size_t id = 0; id < expected.weights.size(); ++id) {
    EXPECT_EQ(service.weights[id], expected.weights[id])
        << job.parameters(static_cast<int>(id)).name();
  }
  ExpectCopiesEqual(job, service);
  ASSERT_EQ(service.records.size(), expected.records.size());
  for (size_t i = 0; i < expected.records.size(); ++i) {
    ExpectEqual(service.records[i], expected.records[i]);
  }
}

}  // namespace kaon::testing

#endif  // KAON_TESTS_INTEGRATION_JOB_PARTS_H_
