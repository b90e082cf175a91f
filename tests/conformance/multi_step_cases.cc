#include "tests/conformance/multi_step_cases.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/decide.h"
#include "job/schedule.h"
#include "proto/decide_version.h"
#include "tests/conformance/decision_trial.h"
#include "tests/conformance/gradient_sum.h"
#include "tests/kernels/reference/float64_decision.h"

namespace kaon::conformance {
namespace {

using kernels::Backend;

// Kind of the only gradient of a step.
enum class Sent { kSound, kOverflow, kSpike };

constexpr double kThreshold = 100;
constexpr double kBaseRate = 0.02;
constexpr double kMultiplier = 0.75;
constexpr double kGroupMultiplier = 0.3;
constexpr int kSteps = 60;
// A product of four factors, each rounded.
constexpr double kFewUnits = 4 * std::numeric_limits<double>::epsilon();

v1::JobDefinition OneParameterJob() {
  v1::JobDefinition job;
  job.set_name("steps");
  job.set_world_size(1);
  job.set_grad_norm_skip_threshold(kThreshold);
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name("adamw");
  group.set_rule(v1::RULE_ADAMW);
  group.set_lr(kBaseRate);
  job.set_scalar_group("adamw");
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name("bias");
  parameter.add_shape(1);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  return job;
}

// Runs of sound steps and of overflows of every short length, and a spike now and then.
Sent SentAt(int step) {
  if (step % 13 == 7) return Sent::kSpike;
  return step % 11 < step / 11 ? Sent::kOverflow : Sent::kSound;
}

class Steps {
 public:
  explicit Steps(const v1::JobDefinition& job) : job_(Registration(job, 1)) {
    v1::StepPlan plan;
    *plan.mutable_registration() = job_;
    *record_.mutable_decision() = job::Decide(job_, plan, {}, nullptr);
  }

  // The newest record.
  const v1::StepDecision& decision() const { return record_.decision(); }
  const v1::StepBody& body() const { return record_.plan().step(); }

  void Take(Sent sent, Backend& backend) {
    v1::StepPlan plan;
    plan.set_decide_version(proto::kDecideVersion);
    v1::StepBody& step = *plan.mutable_step();
    step.set_kind(v1::STEP_KIND_TRAIN);
    step.set_loss_scale(decision().next_loss_scale());
    job::AddRates(job_.definition(), decision().applied_updates(),
                  {kMultiplier, {{"adamw", kGroupMultiplier}}}, step);
    const float spike = sent == Sent::kSpike ? 2 * kThreshold : 0.5f;
    const std::vector<float> gradient = {
        sent == Sent::kOverflow ? std::numeric_limits<float>::infinity() : spike};
    const kernels::GradNorm norm =
        kernels::GradientSum(backend, gradient).accumulation().FinishMean({}).norm;
    std::vector<v1::Prepared> votes(1);
    v1::ParameterSums& row = *votes[0].add_sums();
    row.set_num_elements(1);
    row.set_sum_squares(norm.sum_squares);
    row.set_num_non_finite(static_cast<uint64_t>(norm.num_non_finite));
    v1::StepRecord record;
    *record.mutable_decision() = job::Decide(job_, plan, votes, &record_);
    *record.mutable_plan() = std::move(plan);
    record_ = std::move(record);
  }

 private:
  const v1::RegisterBody job_;
  v1::StepRecord record_;
};

// Steps after which the scale, or its counters, are not those of the reference.
double ScaleErrors(const v1::LossScaler& options, reference::LossScaler expected,
                   Backend& backend) {
  v1::JobDefinition job = OneParameterJob();
  *job.mutable_loss_scaler() = options;
  Steps steps(job);
  int wrong = steps.decision().next_loss_scale() != expected.scale;
  for (int step = 0; step < kSteps; ++step) {
    const Sent sent = SentAt(step);
    steps.Take(sent, backend);
    // The gradients of a spike are sound.
    expected.AfterStep(sent == Sent::kOverflow);
    wrong += steps.decision().next_loss_scale() != expected.scale;
    if (!expected.dynamic) continue;
    wrong += steps.decision().loss_scaler().growth_steps() != expected.steps_without_overflow;
  }
  return wrong;
}

void AddScaleRows(std::vector<NumericsCase>& cases) {
  for (const bool dynamic : {false, true}) {
    for (const int growth_interval : {1, 2, 5}) {
      for (const int hysteresis : {1, 2, 3}) {
        for (const double min_scale : {1.0, 256.0}) {
          // A constant scale has none of the other options.
          if (!dynamic && (growth_interval > 1 || hysteresis > 1 || min_scale > 1)) continue;
          v1::LossScaler options;
          options.set_initial_scale(1024);
          reference::LossScaler expected;
          expected.scale = 1024;
          if (dynamic) {
            options.set_dynamic(true);
            options.set_min_scale(min_scale);
            options.set_growth_interval(growth_interval);
            options.set_hysteresis(hysteresis);
            expected = {true, 1024, min_scale, growth_interval, hysteresis, 0, hysteresis};
          }
          const std::string name =
              dynamic ? absl::StrCat("min=", min_scale, " growth_interval=", growth_interval,
                                     " hysteresis=", hysteresis)
                      : "constant";
          cases.push_back({"loss_scale", name, "[T2b] [T3]", "scales", 0, [=](Backend& backend) {
                             return ScaleErrors(options, expected, backend);
                           }});
        }
      }
    }
  }
}

// The largest error of a rate, in parts of the base rate.
double RateError(const v1::Schedule& schedule, const reference::ScheduleShape& shape,
                 Backend& backend) {
  v1::JobDefinition job = OneParameterJob();
  *job.mutable_groups(0)->mutable_schedule() = schedule;
  Steps steps(job);
  double error = 0;
  int64_t applied = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Sent sent = SentAt(step);
    const double expected =
        kBaseRate * reference::FactorAt(shape, applied) * kMultiplier * kGroupMultiplier;
    steps.Take(sent, backend);
    const double off = std::fabs(steps.body().rates(0).learning_rate() - expected) / kBaseRate;
    if (!(off <= error)) error = off;
    if (sent == Sent::kSound) ++applied;
  }
  return error;
}

void AddScheduleRows(std::vector<NumericsCase>& cases) {
  struct Kind {
    v1::ScheduleKind wire;
    reference::Descent descent;
    const char* name;
  };
  for (const Kind& kind : {Kind{v1::SCHEDULE_KIND_CONSTANT, reference::Descent::kNone, "constant"},
                           Kind{v1::SCHEDULE_KIND_COSINE, reference::Descent::kCosine, "cosine"},
                           Kind{v1::SCHEDULE_KIND_LINEAR, reference::Descent::kLinear, "linear"},
                           Kind{v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY,
                                reference::Descent::kLinearAtTheEnd, "warmup_stable_decay"}}) {
    const bool constant = kind.descent == reference::Descent::kNone;
    const bool at_the_end = kind.descent == reference::Descent::kLinearAtTheEnd;
    for (const uint64_t warmup : {0, 1, 7}) {
      for (const double final_factor : {0.0, 0.1, 1.0}) {
        for (const uint64_t decay : {1, 9, 13}) {
          if (constant && final_factor > 0) continue;
          if (!at_the_end && decay > 1) continue;
          // Some steps follow the end of the schedule. Without warm-up the decay may fill all of
          // it.
          const uint64_t total = constant ? 0 : warmup + 13;
          v1::Schedule schedule;
          schedule.set_kind(kind.wire);
          schedule.set_warmup_steps(warmup);
          schedule.set_total_steps(total);
          schedule.set_decay_steps(at_the_end ? decay : 0);
          schedule.set_final_factor(final_factor);
          const reference::ScheduleShape shape{kind.descent, static_cast<int64_t>(warmup),
                                               static_cast<int64_t>(total),
                                               static_cast<int64_t>(decay), final_factor};
          cases.push_back({"schedule",
                           absl::StrCat(kind.name, " warmup=", warmup, " final=", final_factor,
                                        at_the_end ? absl::StrCat(" decay=", decay) : ""),
                           "[T3] [T4] edges 20 and 52", "learning rates", kFewUnits,
                           [=](Backend& backend) { return RateError(schedule, shape, backend); }});
        }
      }
    }
  }
}

}  // namespace

std::vector<NumericsCase> MultiStepCases() {
  std::vector<NumericsCase> cases;
  AddScaleRows(cases);
  AddScheduleRows(cases);
  return cases;
}

}  // namespace kaon::conformance
