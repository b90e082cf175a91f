#include "tests/conformance/decision_cases.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/conformance/decision_trial.h"
#include "tests/conformance/pairwise.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::conformance {
namespace {

using kernels::Backend;

enum Dimension {
  kScope,
  kLimit,
  kFloor,
  kExemption,
  kNormGroup,
  kThreshold,
  kScalarRule,
  kSpecial,
  kInput,
  kReport,
  kShards
};

enum Exemption { kByRule, kMuonClips, kScalarExempt, kAllExempt };
enum MtpLimit { kNoMtp, kOwnLimit, kLimitOfTheJob, kMtpOff };
// Special role of parameter b1.
enum Special { kPlain, kCopy, kMissing, kFrozen, kMuonOnly };
enum Input { kEven, kMuonSpike, kScalarSpike, kMtpSpike, kTiny, kHuge, kZero };
enum Id { kW0, kB0, kW1, kB1, kE0, kOne };

constexpr double kLimits[] = {1, 0, 1e9};
constexpr double kFloors[] = {0, 0.01};
constexpr double kThresholds[] = {std::numeric_limits<double>::infinity(), 50, 1e5};
constexpr v1::Rule kScalarRules[] = {v1::RULE_ADAMW, v1::RULE_SGD, v1::RULE_LION};
constexpr int kNumShards[] = {1, 2, 7};
constexpr double kMtpLimit = 0.25;

constexpr const char* kExemptionNames[] = {"by_rule", "muon_clips", "scalar_exempt", "all_exempt"};
constexpr const char* kMtpNames[] = {"no_mtp", "mtp_own", "mtp_jobs", "mtp_off"};
constexpr const char* kRuleNames[] = {"adamw", "sgd", "lion"};
constexpr const char* kSpecialNames[] = {"plain", "copy", "missing", "frozen", "muon_only"};
constexpr const char* kInputNames[] = {"even", "muon_spike", "scalar_spike", "mtp_spike",
                                       "tiny", "huge",       "zero"};

// A few units of float64: of a sum of thousands of squares, a root and a quotient.
constexpr double kFewUnits = 8 * std::numeric_limits<double>::epsilon();

std::string NameOf(const Row& row) {
  return absl::StrCat(row[kScope] == 0 ? "live" : "all", " max=", kLimits[row[kLimit]],
                      " floor=", kFloors[row[kFloor]], " ", kExemptionNames[row[kExemption]], " ",
                      kMtpNames[row[kNormGroup]], " skip>", kThresholds[row[kThreshold]], " ",
                      kRuleNames[row[kScalarRule]], " ", kSpecialNames[row[kSpecial]], " ",
                      kInputNames[row[kInput]], row[kReport] == 0 ? "" : " report_off",
                      " shards=", kNumShards[row[kShards]]);
}

bool IsFrozen(const Row& row, int id) {
  if (row[kSpecial] == kFrozen) return id == kB1;
  return row[kSpecial] == kMuonOnly && id != kW0 && id != kW1;
}

v1::ParameterGroup& AddGroup(const char* name, v1::Rule rule, v1::JobDefinition& job) {
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name(name);
  group.set_rule(rule);
  group.set_lr(0.01);
  return group;
}

void AddParameter(const char* name, std::vector<uint64_t> shape, const char* group,
                  v1::JobDefinition& job) {
  v1::ParameterSpec& parameter = *job.add_parameters();
  parameter.set_name(name);
  for (const uint64_t extent : shape) parameter.add_shape(extent);
  parameter.set_dtype(v1::DTYPE_FLOAT32);
  parameter.set_group(group);
}

void AddParameters(const Row& row, v1::JobDefinition& job) {
  AddParameter("w0", {64, 80}, "muon", job);
  AddParameter("b0", {300}, "scalar", job);
  AddParameter("w1", {8, 12}, "muon", job);
  AddParameter("b1", {300}, "scalar", job);
  AddParameter("e0", {77}, "extra", job);
  AddParameter("one", {1}, "scalar", job);
  if (row[kNormGroup] != kNoMtp) job.mutable_parameters(kW1)->set_norm_group("mtp");
  if (row[kSpecial] == kCopy) job.mutable_parameters(kB1)->set_tied_to("b0");
  for (int id = kW0; id <= kOne; ++id) {
    if (!IsFrozen(row, id)) continue;
    job.mutable_parameters(id)->set_frozen(true);
    job.mutable_parameters(id)->clear_group();
  }
}

v1::JobDefinition JobOf(const Row& row) {
  v1::JobDefinition job;
  job.set_name("decisions");
  job.set_world_size(1);
  v1::ParameterGroup& muon = AddGroup("muon", v1::RULE_MUON, job);
  if (row[kExemption] == kMuonClips) muon.set_clip_policy(v1::CLIP_POLICY_CLIP);
  AddGroup("scalar", kScalarRules[row[kScalarRule]], job);
  AddGroup("extra", v1::RULE_SGD, job);
  if (row[kExemption] == kScalarExempt) {
    job.mutable_groups(1)->set_clip_policy(v1::CLIP_POLICY_EXEMPT);
  } else if (row[kExemption] == kAllExempt) {
    for (v1::ParameterGroup& group : *job.mutable_groups()) {
      group.set_clip_policy(v1::CLIP_POLICY_EXEMPT);
    }
  }
  job.set_matrix_group("muon");
  job.set_scalar_group("scalar");
  if (row[kNormGroup] != kNoMtp) {
    v1::NormGroup& mtp = *job.add_norm_groups();
    mtp.set_name("mtp");
    if (row[kNormGroup] == kOwnLimit) mtp.set_max_grad_norm(kMtpLimit);
    if (row[kNormGroup] == kMtpOff) mtp.set_max_grad_norm(0);
    job.mutable_groups(2)->set_norm_group("mtp");
  }
  AddParameters(row, job);
  job.set_max_grad_norm(kLimits[row[kLimit]]);
  if (row[kScope] == 1) job.set_clip_scope(v1::CLIP_SCOPE_ALL);
  if (row[kFloor] > 0) job.set_clip_floor(kFloors[row[kFloor]]);
  if (row[kThreshold] > 0) job.set_grad_norm_skip_threshold(kThresholds[row[kThreshold]]);
  if (row[kReport] == 1) job.set_report_norms(v1::REPORT_NORMS_OFF);
  return job;
}

reference::DecisionPolicy PolicyOf(const Row& row) {
  reference::DecisionPolicy policy;
  policy.groups.resize(3);
  policy.groups[0].scale_invariant = true;
  if (row[kExemption] == kMuonClips) policy.groups[0].exempt_by_policy = false;
  if (row[kExemption] == kScalarExempt) policy.groups[1].exempt_by_policy = true;
  if (row[kExemption] == kAllExempt) {
    for (reference::DecisionGroup& group : policy.groups) group.exempt_by_policy = true;
  }
  const double limit = kLimits[row[kLimit]];
  policy.max_grad_norms = {limit};
  if (row[kNormGroup] == kOwnLimit) policy.max_grad_norms.push_back(kMtpLimit);
  if (row[kNormGroup] == kLimitOfTheJob) policy.max_grad_norms.push_back(limit);
  if (row[kNormGroup] == kMtpOff) policy.max_grad_norms.push_back(0);
  policy.scope_is_all = row[kScope] == 1;
  policy.floor = kFloors[row[kFloor]];
  policy.skip_threshold = kThresholds[row[kThreshold]];
  return policy;
}

std::vector<reference::DecisionParameter> ParametersOf(const Row& row) {
  const int mtp = row[kNormGroup] == kNoMtp ? 0 : 1;
  std::vector<reference::DecisionParameter> parameters(kOne + 1);
  for (int id = kW0; id <= kOne; ++id) {
    parameters[id].group = id == kW0 || id == kW1 ? 0 : id == kE0 ? 2 : 1;
    parameters[id].norm_group = id == kW1 || id == kE0 ? mtp : 0;
    parameters[id].frozen = IsFrozen(row, id);
  }
  parameters[kB1].is_copy = row[kSpecial] == kCopy;
  parameters[kB1].missing = row[kSpecial] == kMissing;
  return parameters;
}

double SizeOf(int input, int id) {
  const bool is_matrix = id == kW0 || id == kW1;
  switch (input) {
    case kMuonSpike:
      return is_matrix ? 1e8 : 1e-3;
    case kScalarSpike:
      return is_matrix || id == kE0 ? 1 : 1e4;
    case kMtpSpike:
      return id == kE0 ? 1e7 : 1;
    case kTiny:
      return 1e-25;
    case kHuge:
      return 1e30;
    case kZero:
      return 0;
    default:
      return 1;
  }
}

DecisionTrial TrialOf(const Row& row) {
  DecisionTrial trial{JobOf(row), {}, PolicyOf(row), ParametersOf(row), kNumShards[row[kShards]]};
  for (int id = kW0; id <= kOne; ++id) {
    size_t elements = 1;
    for (const uint64_t extent : trial.job.parameters(id).shape()) elements *= extent;
    trial.gradients.push_back(reference::GaussianVector(elements, 500 + id));
    const double size = SizeOf(row[kInput], id);
    for (float& g : trial.gradients.back()) g = static_cast<float>(g * size);
  }
  return trial;
}

// The row of every dimension's first value.
Row PlainRow() { return Row(kShards + 1, 0); }

void AddRows(const std::string& name, const char* rule_ids, const DecisionTrial& trial,
             std::vector<NumericsCase>& cases) {
  cases.push_back({"decision", name, rule_ids, "outcome", 0,
                   [trial](Backend& backend) { return OutcomeError(trial, backend); }});
  cases.push_back({"decision", name, rule_ids, "clip factors", kFewUnits,
                   [trial](Backend& backend) { return FactorError(trial, backend); }});
  // The record has only the norms that the job reports.
  if (trial.job.report_norms() == v1::REPORT_NORMS_OFF) return;
  cases.push_back({"decision", name, rule_ids, "norms", kFewUnits,
                   [trial](Backend& backend) { return NormError(trial, backend); }});
}

// [T3]: one bad element in any parameter, and in those whose gradient does not matter.
void AddNonFiniteRows(std::vector<NumericsCase>& cases) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const Special special : {kPlain, kCopy, kMissing, kFrozen}) {
      for (const int id : {kW0, kB0, kW1, kB1, kE0}) {
        if (special != kPlain && id != kB1) continue;
        Row row = PlainRow();
        row[kSpecial] = special;
        row[kNormGroup] = kOwnLimit;
        row[kFloor] = 1;
        row[kShards] = 1;
        DecisionTrial trial = TrialOf(row);
        trial.gradients[id].back() = value;
        const std::string name =
            absl::StrCat(std::isnan(value) ? "NaN" : "inf", " in ", kSpecialNames[special], " ",
                         trial.job.parameters(id).name());
        cases.push_back({"decision", name, "[T3] [T7] [T8]", "outcome", 0,
                         [trial](Backend& backend) { return OutcomeError(trial, backend); }});
      }
    }
  }
}

// Edge 42: a live norm of exactly 5 meets limits ([C5]) and skip thresholds ([T4]) exactly or just
// misses them.
void AddBoundaryRows(std::vector<NumericsCase>& cases) {
  struct Boundary {
    const char* name;
    double limit;
    double threshold;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Boundary& boundary :
       {Boundary{"max=5", 5, infinity}, Boundary{"max=5+1e-6", 5 + 1e-6, infinity},
        Boundary{"max=5.1", 5.1, infinity}, Boundary{"max=1 skip>5", 1, 5},
        Boundary{"max=1 skip>just below", 1, std::nextafter(5.0, 0.0)},
        Boundary{"max=0 skip>just below", 0, std::nextafter(5.0, 0.0)}}) {
    Row row = PlainRow();
    row[kInput] = kZero;
    DecisionTrial trial = TrialOf(row);
    trial.gradients[kB0][17] = 3;
    trial.gradients[kB1][299] = -4;
    trial.gradients[kW0][0] = 1e6;
    trial.job.set_max_grad_norm(boundary.limit);
    trial.policy.max_grad_norms = {boundary.limit};
    trial.policy.skip_threshold = boundary.threshold;
    if (std::isfinite(boundary.threshold)) {
      trial.job.set_grad_norm_skip_threshold(boundary.threshold);
    }
    AddRows(absl::StrCat("norm 5, ", boundary.name), "[C5] [T4]", trial, cases);
  }
}

// The largest element that a step accepts and the next larger one ([T3]), each with and without
// clipping.
void AddLargestRows(std::vector<NumericsCase>& cases) {
  const float limit = 0x1p62f;
  for (const float value : {limit, std::nextafter(limit, HUGE_VALF), 1e21f, 2e38f}) {
    for (const int id : {kW0, kB0, kB1, kE0}) {
      for (const bool clips : {false, true}) {
        Row row = PlainRow();
        row[kInput] = kZero;
        row[kLimit] = clips ? 0 : 1;
        row[kNormGroup] = kMtpOff;
        row[kSpecial] = kCopy;
        DecisionTrial trial = TrialOf(row);
        trial.gradients[id][0] = -value;
        AddRows(absl::StrCat("element ", value, value == limit ? "" : " above the limit", " in ",
                             trial.job.parameters(id).name(), clips ? ", clipped" : ""),
                "[T3] [T5] [C5]", trial, cases);
      }
    }
  }
}

}  // namespace

std::vector<NumericsCase> DecisionCases() {
  std::vector<NumericsCase> cases;
  const std::vector<int> sizes = {2, 3, 2, 4, 4, 3, 3, 5, 7, 2, 3};
  for (const Row& row : CoverPairs(sizes, [](const Row&) { return true; })) {
    AddRows(NameOf(row), "[C1] [C2] [C3] [C4] [C5] [C6] [C7] [C8] [T4] [T5] [T7] [T8]",
            TrialOf(row), cases);
  }
  AddNonFiniteRows(cases);
  AddBoundaryRows(cases);
  AddLargestRows(cases);
  return cases;
}

}  // namespace kaon::conformance
