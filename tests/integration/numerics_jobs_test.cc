// The service and the path without servers compute the same weights, bit for bit. The jobs of a
// table cover every optimizer rule with its modes, every matrix layout and every stored momentum.
// The rules are [G1], [G2], [A2], [A4], [A5], [L1]-[L6], [Q1], [W1], [P2] and [P3] of numerics.md.
// Each job has two norm groups, a copy, a schedule and a step that is skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "job/definition.h"
#include "job/resolve.h"
#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using testing::DrawTensor;
using testing::ExpectCopiesEqual;
using testing::ExpectEqual;
using testing::SetSchedule;
using testing::TrainedJob;
using testing::TrainingPlan;
using testing::TrainOnShards;
using testing::TrainWithoutServers;

constexpr uint64_t kSkippedStep = 3;
constexpr uint64_t kSteps = 5;

// Returns the common part of every job: two norm groups with different limits, the second of which
// contains `mtp`, and a loss scaler.
v1::JobDefinition Framed(const std::string& name) {
  v1::JobDefinition job;
  job.set_name(name);
  job.set_world_size(2);
  job.set_max_grad_norm(1);
  v1::NormGroup& mtp = *job.add_norm_groups();
  mtp.set_name("mtp");
  mtp.set_max_grad_norm(0.25);
  job.mutable_loss_scaler()->set_dynamic(true);
  job.mutable_loss_scaler()->set_initial_scale(256);
  job.mutable_loss_scaler()->set_hysteresis(1);
  return job;
}

// Options that are the default are left unset.
v1::ParameterGroup& AddSgd(v1::JobDefinition& job, const std::string& name, double momentum,
                           double dampening, bool nesterov) {
  v1::ParameterGroup& group = AddGroup(job, name, v1::RULE_SGD, 0.05);
  if (momentum > 0) group.mutable_sgd()->set_momentum(momentum);
  if (dampening > 0) group.mutable_sgd()->set_dampening(dampening);
  if (nesterov) group.mutable_sgd()->set_nesterov(true);
  return group;
}

v1::ParameterGroup& AddLion(v1::JobDefinition& job, const std::string& name) {
  return AddGroup(job, name, v1::RULE_LION, 0.01);
}

// [G1], [G2], [A2], [A4], [A5], [W1]: every mode of the element-wise rules.
v1::JobDefinition ElementWiseJob() {
  v1::JobDefinition job = Framed("element-wise");
  AddSgd(job, "sgd", 0, 0, false);
  AddSgd(job, "sgd-momentum", 0.9, 0, false).set_decay_mode(v1::DECAY_MODE_INDEPENDENT);
  SetSchedule(v1::SCHEDULE_KIND_LINEAR, 1, 6, 0, AddSgd(job, "sgd-dampened", 0.9, 0.5, false));
  AddSgd(job, "sgd-nesterov", 0.8, 0, true).set_decay_mode(v1::DECAY_MODE_PALM);
  SetSchedule(v1::SCHEDULE_KIND_COSINE, 1, 5, 0, AddLion(job, "lion"));
  v1::ParameterGroup& mixed = AddLion(job, "lion-l2");
  mixed.set_decay_mode(v1::DECAY_MODE_L2);
  mixed.mutable_lion()->set_beta1(0.5);
  mixed.mutable_lion()->set_beta2(0.75);
  v1::ParameterGroup& exempt = AddLion(job, "lion-exempt");
  exempt.set_clip_policy(v1::CLIP_POLICY_EXEMPT);
  exempt.mutable_lion()->set_beta1(0);
  v1::AdamWOptions& amsgrad = *AddGroup(job, "adamw-amsgrad", v1::RULE_ADAMW, 0.01).mutable_adamw();
  amsgrad.set_amsgrad(true);
  amsgrad.set_bias_correction(false);
  AddGroup(job, "adamw-uncorrected", v1::RULE_ADAMW, 0.01)
      .mutable_adamw()
      ->set_eps_mode(v1::ADAM_EPS_MODE_UNCORRECTED);
  AddGroup(job, "muon", v1::RULE_MUON, 0.02);
  job.set_matrix_group("muon");
  job.set_scalar_group("sgd");
  // More than one block of a vectorised loop, one element, and a matrix.
  for (const v1::ParameterGroup& group :
       std::vector<v1::ParameterGroup>(job.groups().begin(), job.groups().end())) {
    if (group.rule() == v1::RULE_MUON) continue;
    AddParameter(job, group.name() + ".long", {37}, group.name());
    AddParameter(job, group.name() + ".matrix", {5, 3}, group.name());
  }
  AddParameter(job, "one", {1}, "lion").set_norm_group("mtp");
  AddParameter(job, "copy", {5, 3}, "sgd-nesterov").set_tied_to("sgd-nesterov.matrix");
  AddParameter(job, "mtp.bias", {9}, "sgd-dampened").set_norm_group("mtp");
  AddParameter(job, "hidden.weight", {4, 6});
  return job;
}

v1::ParameterSpec& AddMatrices(v1::JobDefinition& job, const std::string& name,
                               const std::vector<uint64_t>& shape, v1::MatrixLayoutKind kind,
                               const std::vector<uint64_t>& sizes = {}) {
  v1::ParameterSpec& parameter = AddParameter(job, name, shape);
  parameter.mutable_layout()->set_kind(kind);
  for (const uint64_t size : sizes) parameter.mutable_layout()->add_sizes(size);
  return parameter;
}

// [L1]-[L6], by the parameter and by a routing rule, in three groups with other iterations, scales
// and momentum ([N2], [N6], [N7], [S1], [M2]).
v1::JobDefinition LayoutJob() {
  v1::JobDefinition job = Framed("layouts");
  SetSchedule(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY, 1, 5, 3,
              AddGroup(job, "jordan", v1::RULE_MUON, 0.02));
  v1::ParameterGroup& polar = AddGroup(job, "polar", v1::RULE_MUON, 0.02);
  polar.set_clip_policy(v1::CLIP_POLICY_CLIP);
  polar.mutable_muon()->set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS);
  polar.mutable_muon()->set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_BFLOAT16);
  polar.mutable_muon()->set_momentum_form(v1::MOMENTUM_FORM_SUM);
  polar.mutable_muon()->set_scale(v1::UPDATE_SCALE_ORIGINAL);
  v1::MuonOptions& gram = *AddGroup(job, "gram", v1::RULE_MUON, 0.02).mutable_muon();
  gram.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
  gram.set_scale(v1::UPDATE_SCALE_UNIT_RMS_NORM);
  gram.set_nesterov(false);
  AddGroup(job, "lion", v1::RULE_LION, 0.01);
  job.set_matrix_group("jordan");
  job.set_scalar_group("lion");
  // Grouped queries: 4 heads of q for each of k and v.
  AddMatrices(job, "qkv", {24, 6}, v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS, {16, 4, 4});
  AddMatrices(job, "gate-up", {10, 7}, v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS, {4, 6})
      .set_group("polar");
  AddMatrices(job, "experts", {3, 6, 4}, v1::MATRIX_LAYOUT_KIND_BATCHED).set_group("gram");
  AddMatrices(job, "stacked-experts", {2, 2, 7, 3}, v1::MATRIX_LAYOUT_KIND_BATCHED, {3, 4});
  AddMatrices(job, "transposed-experts", {2, 4, 9}, v1::MATRIX_LAYOUT_KIND_BATCHED)
      .set_transposed(true);
  AddMatrices(job, "conv", {5, 2, 3, 3}, v1::MATRIX_LAYOUT_KIND_CONV_FLATTEN).set_group("polar");
  AddParameter(job, "transposed", {4, 9}, "polar").set_transposed(true);
  AddMatrices(job, "heads", {12, 5}, v1::MATRIX_LAYOUT_KIND_HEADS)
      .mutable_layout()
      ->set_num_heads(4);
  AddMatrices(job, "split-columns", {6, 11}, v1::MATRIX_LAYOUT_KIND_SPLIT_COLS, {3, 8});
  AddMatrices(job, "interleaved", {16, 5}, v1::MATRIX_LAYOUT_KIND_QKV_INTERLEAVED, {2, 1, 1});
  AddMatrices(job, "gated", {12, 5}, v1::MATRIX_LAYOUT_KIND_QKV_INTERLEAVED, {2, 2, 1, 1})
      .set_group("gram");
  AddParameter(job, "stacked.weight", {3, 4, 8});
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name("stacked");
  rule.set_name_glob("stacked.*");
  rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_BATCHED);
  AddParameter(job, "copy", {5, 2, 3, 3}).set_tied_to("conv");
  AddParameter(job, "mtp.bias", {6}).set_norm_group("mtp");
  return job;
}

// [Q1], [Q2]: momentum stored as bfloat16 and int8, of every rule that has one, and second moments
// as roots; whole groups of 32, and tails.
v1::JobDefinition StoredMomentumJob() {
  v1::JobDefinition job = Framed("stored-momentum");
  struct Stored {
    const char* suffix;
    v1::StateDType dtype;
  };
  for (const Stored& stored :
       {Stored{"-bf16", v1::STATE_DTYPE_BFLOAT16}, Stored{"-int8", v1::STATE_DTYPE_INT8}}) {
    const std::string suffix = stored.suffix;
    AddGroup(job, "muon" + suffix, v1::RULE_MUON, 0.02);
    AddGroup(job, "adamw" + suffix, v1::RULE_ADAMW, 0.01);
    AddSgd(job, "sgd" + suffix, 0.9, 0, suffix == "-int8");
    AddLion(job, "lion" + suffix);
    for (int g = job.groups_size() - 4; g < job.groups_size(); ++g) {
      v1::ParameterGroup& group = *job.mutable_groups(g);
      group.set_momentum_dtype(stored.dtype);
      if (group.rule() == v1::RULE_ADAMW && stored.dtype == v1::STATE_DTYPE_INT8) {
        group.mutable_adamw()->set_exp_avg_sq_dtype(v1::STATE_DTYPE_SQRT_UINT8);
      }
      if (group.rule() == v1::RULE_LION) {
        SetSchedule(v1::SCHEDULE_KIND_LINEAR, 2, 5, 0, group);
      }
      // Lion's signs show the rounding of the momentum in few elements only.
      const uint64_t more = group.rule() == v1::RULE_LION ? 50 : 1;
      AddParameter(job, group.name() + ".weight", {8 * more, 8}, group.name());
      AddParameter(job, group.name() + ".tail", {11 * more + 2, 3}, group.name());
    }
  }
  job.set_matrix_group("muon-int8");
  job.set_scalar_group("adamw-int8");
  AddParameter(job, "copy", {13, 3}, "sgd-int8").set_tied_to("sgd-int8.tail");
  AddParameter(job, "mtp.bias", {35}, "sgd-int8").set_norm_group("mtp");
  return job;
}

TrainingPlan PlanOf(const v1::JobDefinition& job) {
  TrainingPlan plan;
  plan.job = job;
  plan.steps = kSteps;
  plan.gradient = [job](uint32_t id, uint32_t rank, uint64_t step) {
    std::vector<float> gradient = DrawTensor(job, id, 10 * step + rank);
    if (step == kSkippedStep && rank == 1 && id == 2) {
      gradient[0] = std::numeric_limits<float>::infinity();
    }
    return gradient;
  };
  return plan;
}

struct NamedJob {
  const char* name;
  v1::JobDefinition (*definition)();
};

void PrintTo(const NamedJob& job, std::ostream* out) { *out << job.name; }

class NumericsJobsTest : public ::testing::TestWithParam<std::tuple<NamedJob, int>> {};

// [P2], [P3], edge 18: the groups of one rule keep their own options wherever they are stepped.
TEST_P(NumericsJobsTest, EndsInTheWeightsOfThePathWithoutServers) {
  const auto& [named, num_shards] = GetParam();
  const TrainingPlan plan = PlanOf(named.definition());
  const TrainedJob expected = TrainWithoutServers(plan);
  const TrainedJob service = TrainOnShards(plan, num_shards);
  ExpectEqual(plan.job, service, expected);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const StepRecord& record = service.records[step - 1];
    EXPECT_EQ(record.applied, step != kSkippedStep) << record.reason;
    if (!record.applied) continue;
    // Both limits were at work, and the second is not the first's.
    EXPECT_LT(record.norm_groups[0].clip_factor, 1) << step;
    EXPECT_LT(record.norm_groups[1].clip_factor, 1) << step;
    EXPECT_EQ(record.norm_groups[1].clip_factor, 0.25 / (*record.norm_groups[1].norm + 1e-6));
  }
  // Edges 10 and 11: the skip left momentum, moments and counters alone; every other step moved
  // them.
  for (uint64_t step = 2; step <= kSteps; ++step) {
    EXPECT_EQ(service.state_digests[step - 1] == service.state_digests[step - 2],
              step == kSkippedStep)
        << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shards, NumericsJobsTest,
    ::testing::Combine(::testing::Values(NamedJob{"ElementWise", ElementWiseJob},
                                         NamedJob{"Layout", LayoutJob},
                                         NamedJob{"StoredMomentum", StoredMomentumJob}),
                       ::testing::Values(1, 2, 3, 7, 11)),
    [](const auto& info) {
      return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
    });

// The job with the default options of every rule and the layouts it cannot do without.
v1::JobDefinition WithoutOptions(v1::JobDefinition job) {
  for (v1::ParameterGroup& group : *job.mutable_groups()) {
    group.clear_muon();
    group.clear_adamw();
    group.clear_sgd();
    group.clear_lion();
    group.clear_decay_mode();
    group.clear_momentum_dtype();
  }
  for (v1::ParameterSpec& parameter : *job.mutable_parameters()) {
    parameter.clear_transposed();
    const bool was_batched = parameter.layout().kind() == v1::MATRIX_LAYOUT_KIND_BATCHED &&
                             parameter.layout().sizes_size() == 0;
    const bool has_layout = parameter.has_layout();
    parameter.clear_layout();
    if (!has_layout || parameter.shape_size() < 3) continue;
    parameter.mutable_layout()->set_kind(was_batched ? v1::MATRIX_LAYOUT_KIND_CONV_FLATTEN
                                                     : v1::MATRIX_LAYOUT_KIND_BATCHED);
  }
  return job;
}

bool SameBytes(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

// The table would show little if an option changed nothing: without it the weights are others.
TEST(NumericsJobsTest, EveryOptionOfTheTableIsAtWork) {
  for (v1::JobDefinition (*definition)() : {ElementWiseJob, LayoutJob, StoredMomentumJob}) {
    const v1::JobDefinition job = definition();
    const v1::JobDefinition plain = WithoutOptions(job);
    const absl::StatusOr<v1::RegisterBody> resolved = job::Resolve(job);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const TrainedJob trained = TrainWithoutServers(PlanOf(job));
    const TrainedJob otherwise = TrainWithoutServers(PlanOf(plain));
    for (int id = 0; id < job.parameters_size(); ++id) {
      const v1::ParameterSpec& parameter = job.parameters(id);
      const int group = job::GroupIndex(job, resolved->placement().parameters(id).group());
      const bool is_plain = SameBytes(parameter, plain.parameters(id)) &&
                            SameBytes(job.groups(group), plain.groups(group));
      EXPECT_EQ(trained.weights[id] == otherwise.weights[id], is_plain) << parameter.name();
    }
  }
}

constexpr float kSpike = 1000;

float SignOf(uint64_t step, size_t element) { return (element + step) % 3 == 0 ? -1.0f : 1.0f; }

// Returns a plan with one parameter of each rule in one chain. The first step is a spike of equal
// entries, the second one has entries of size one, some with another sign.
TrainingPlan ChainPlan(double max_grad_norm) {
  TrainingPlan plan;
  plan.job.set_name("chain");
  plan.job.set_world_size(1);
  plan.job.set_max_grad_norm(max_grad_norm);
  for (const char* name : {"muon", "sgd", "lion", "adamw"}) {
    const v1::Rule rule = std::string(name) == "muon"   ? v1::RULE_MUON
                          : std::string(name) == "sgd"  ? v1::RULE_SGD
                          : std::string(name) == "lion" ? v1::RULE_LION
                                                        : v1::RULE_ADAMW;
    AddGroup(plan.job, name, rule, 0.125).set_weight_decay(0);
    AddParameter(plan.job, name, {2, 3}, name);
  }
  plan.job.set_matrix_group("muon");
  plan.job.set_scalar_group("adamw");
  plan.steps = 2;
  plan.gradient = [](uint32_t, uint32_t, uint64_t step) {
    std::vector<float> gradient(6);
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = SignOf(step, i) * (step == 1 ? kSpike : 1);
    }
    return gradient;
  };
  return plan;
}

// Edge 5: SGD, Lion and AdamW are clipped by the norm of the three, while Muon is exempt ([C7],
// [C9]).
TEST(NumericsJobsTest, EveryRuleButMuonIsClippedInOneChain) {
  enum { kMuon, kSgd, kLion, kAdamW };
  TrainingPlan plan = ChainPlan(1);
  const TrainedJob clipped = TrainOnShards(plan, 3);
  const TrainedJob unclipped = TrainOnShards(ChainPlan(0), 3);
  plan.steps = 0;
  const TrainedJob start = TrainWithoutServers(plan);
  EXPECT_EQ(clipped.weights[kMuon], unclipped.weights[kMuon]);
  for (const int id : {kSgd, kLion, kAdamW}) {
    EXPECT_NE(clipped.weights[id], unclipped.weights[id]) << plan.job.parameters(id).name();
  }
  // Three times six equal entries of norm 1.
  const double entry = 1 / std::sqrt(18.0);
  for (size_t i = 0; i < 6; ++i) {
    const double signs = SignOf(1, i) + SignOf(2, i);
    EXPECT_NEAR(start.weights[kSgd][i] - clipped.weights[kSgd][i], 0.125 * signs * entry, 1e-5);
    // Lion forgets a spike that was clipped with the rest. Momentum keeps 0.02 of it, which weighs
    // less than the new gradient, so the sign is that of the new one. Unclipped, the sign is that
    // of the spike.
    EXPECT_NEAR(start.weights[kLion][i] - clipped.weights[kLion][i], 0.125 * signs, 1e-5);
    EXPECT_NEAR(start.weights[kLion][i] - unclipped.weights[kLion][i], 0.25 * SignOf(1, i), 1e-5);
  }
}

// In a job that names no group, a copy steps as its original, whatever its own name is ([C2]).
TEST(NumericsJobsTest, ACopyStaysEqualToItsOriginal) {
  TrainingPlan plan;
  plan.job.set_name("tied");
  plan.job.set_world_size(2);
  plan.job.set_preset("default");
  AddParameter(plan.job, "decoder.weight", {7, 4}).set_tied_to("tok_embeddings.weight");
  AddParameter(plan.job, "tok_embeddings.weight", {7, 4}).set_lr_multiplier(0.5);
  AddParameter(plan.job, "hidden.weight", {4, 6});
  plan.steps = 3;
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    return DrawTensor(job, id, 10 * step + rank);
  };
  const TrainedJob trained = TrainOnShards(plan, 2);
  ExpectCopiesEqual(plan.job, trained);
  EXPECT_NE(trained.weights[0], DrawTensor(plan.job, 0, 1000)) << "it was stepped";
}

}  // namespace
}  // namespace kaon
