#include "job/validation.h"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ValidationError(const v1::JobDefinition& job) {
  const absl::Status status = Resolve(job).status();
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ValidationTest, AcceptsAJobWithMuonAndAdamW) { EXPECT_TRUE(Resolve(SmallJob()).ok()); }

TEST(ValidationTest, RefusesABadJobName) {
  v1::JobDefinition job = SmallJob();
  job.set_name("Not_Allowed");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("Not_Allowed"), HasSubstr("[a-z0-9-]{1,63}")));
}

TEST(ValidationTest, RefusesAWorldSizeOutOfRange) {
  v1::JobDefinition job = SmallJob();
  job.set_world_size(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 0, must be 1 .. 4096"));
  job.set_world_size(4097);
  EXPECT_THAT(ValidationError(job), HasSubstr("world_size is 4097"));
}

TEST(ValidationTest, RefusesANormLimitThatIsNotANumber) {
  v1::JobDefinition job = SmallJob();
  job.set_max_grad_norm(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ValidationError(job), HasSubstr("max_grad_norm"));
  job.set_max_grad_norm(1e-320);
  EXPECT_THAT(ValidationError(job), HasSubstr("must be 0 (off) or 1e-30 .. 3.40282e+38"));
  job.set_max_grad_norm(1e39);
  EXPECT_THAT(ValidationError(job), HasSubstr("max_grad_norm is 1e+39"));
  job.set_max_grad_norm(1e-30);
  EXPECT_EQ(ValidationError(job), "OK");
  job.set_max_grad_norm(0);
  EXPECT_EQ(ValidationError(job), "OK");
}

// Writes `value` into the `n`-th string of the message and its submessages, counted from 0. If
// there are fewer strings, returns false and subtracts their number from `n`.
bool SetString(google::protobuf::Message* message, const std::string& value, int* n) {
  const google::protobuf::Reflection& fields = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message->GetDescriptor()->field(i);
    if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      if ((*n)-- > 0) continue;
      field.is_repeated() ? fields.AddString(message, &field, value)
                          : fields.SetString(message, &field, value);
      return true;
    }
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field.is_repeated()) {
      for (int k = 0; k < fields.FieldSize(*message, &field); ++k) {
        if (SetString(fields.MutableRepeatedMessage(message, &field, k), value, n)) return true;
      }
    } else if (fields.HasField(*message, &field)) {
      if (SetString(fields.MutableMessage(message, &field), value, n)) return true;
    }
  }
  return false;
}

TEST(ValidationTest, WhicheverStringIsLongAndNotPrintableTheErrorIsShortAndPrintable) {
  v1::JobDefinition job = SmallJob();
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name("rule");
  rule.set_group(job.groups(0).name());
  job.add_norm_groups()->set_name("norms");
  for (const std::string& value :
       {std::string(9000, '\x1b'), "(" + std::string(900, '\n'), std::string("\xff\"")}) {
    for (int tried = 0;; ++tried) {
      v1::JobDefinition bad = job;
      int n = tried;
      if (!SetString(&bad, value, &n)) {
        EXPECT_GE(tried, 15);
        break;
      }
      const std::string error = ValidationError(bad);
      EXPECT_LE(error.size(), 1000u) << error;
      EXPECT_TRUE(std::all_of(error.begin(), error.end(), absl::ascii_isprint)) << error;
    }
  }
}

TEST(ValidationTest, RefusesTwoParametersOfOneName) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_name("h.weight");
  EXPECT_THAT(ValidationError(job), HasSubstr("parameters[1].name \"h.weight\" is there twice"));
}

// Of printable names the only one that the format of exports and imports has no room for.
TEST(ValidationTest, RefusesANameThatNoTensorFileCanHold) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_name("__metadata__");
  EXPECT_THAT(ValidationError(job), HasSubstr("parameters[1].name is \"__metadata__\", which"));
}

TEST(ValidationTest, RefusesAnEmptyDimensionAndTooManyElements) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_shape(1, 0);
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: shape[1] is 0"));
  job.mutable_parameters(0)->set_shape(0, uint64_t{1} << 62);
  job.mutable_parameters(0)->set_shape(1, 8);
  EXPECT_THAT(ValidationError(job), HasSubstr("1099511627776 elements in all"));
}

TEST(ValidationTest, RefusesADTypeThatIsNotKnown) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_dtype(static_cast<v1::DType>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: dtype is 9"));
}

TEST(ValidationTest, RefusesAGroupThatDoesNotExist) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_group("elsewhere");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.weight"), HasSubstr("elsewhere")));
  job = SmallJob();
  job.set_matrix_group("nowhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("matrix_group is \"nowhere\", which is none of the "
                                              "job's 2 groups: matrices, scalars"));
}

TEST(ValidationTest, RefusesHyperParametersOutOfRangeNamingTheGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->mutable_adamw()->set_beta1(1);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("scalars"), HasSubstr("beta1")));
  job = SmallJob();
  job.mutable_groups(0)->mutable_muon()->set_ns_steps(100);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("matrices"), HasSubstr("ns_steps is 100")));
  job = SmallJob();
  job.mutable_groups(0)->set_lr(-1);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is -1"));
  job.mutable_groups(0)->set_lr(1e39);
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: lr is 1e+39, must be 0 .. "));
}

// Edge 51.
TEST(ValidationTest, RefusesOptionsOfAnotherRule) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->mutable_muon();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: muon is set, but the rule is adamw"));
  job = SmallJob();
  job.mutable_groups(1)->set_rule(v1::RULE_LION);
  job.mutable_groups(1)->mutable_adamw();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: adamw is set, but the rule is lion"));
  job = SmallJob();
  job.mutable_groups(0)->mutable_sgd();
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: sgd is set, but the rule is muon"));
  job = SmallJob();
  job.mutable_groups(1)->set_rule(v1::RULE_SGD);
  job.mutable_groups(1)->mutable_lion();
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: lion is set, but the rule is sgd"));
}

TEST(ValidationTest, TakesSgdAndLionAndNoRuleBeyond) {
  for (const v1::Rule rule : {v1::RULE_SGD, v1::RULE_LION}) {
    v1::JobDefinition job = SmallJob();
    job.mutable_groups(1)->set_rule(rule);
    EXPECT_EQ(ValidationError(job), "OK");
  }
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->set_rule(static_cast<v1::Rule>(5));
  EXPECT_THAT(ValidationError(job), HasSubstr("rule is 5, must be one of muon, adamw, sgd, lion"));
  job.mutable_groups(1)->set_rule(v1::RULE_SGD);
  job.mutable_groups(1)->mutable_sgd()->set_nesterov(true);
  EXPECT_THAT(ValidationError(job), HasSubstr("sgd.nesterov: is set, but momentum is 0"));
}

TEST(ValidationTest, RefusesEnumeratorsOfTheFuture) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(1)->set_decay_mode(static_cast<v1::DecayMode>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: decay_mode is 9"));
  job = SmallJob();
  job.mutable_groups(1)->set_momentum_dtype(static_cast<v1::StateDType>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: momentum_dtype is 9"));
  job = SmallJob();
  job.mutable_groups(1)->mutable_adamw()->set_eps_mode(static_cast<v1::AdamEpsMode>(9));
  EXPECT_THAT(ValidationError(job), HasSubstr("group scalars: adamw.eps_mode is 9"));
}

TEST(ValidationTest, RefusesMuonForAVector) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_group("matrices");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("h.bias"), HasSubstr("matrices")));
}

// Edge 22: the shape of an empty placeholder is refused, not sent to the scalar group.
TEST(ValidationTest, RefusesTheShapeOfAPlaceholder) {
  for (const bool flat : {false, true}) {
    v1::JobDefinition job = SmallJob();
    job.mutable_parameters(0)->set_shape(0, 0);
    if (flat) job.mutable_parameters(0)->mutable_shape()->Truncate(1);
    EXPECT_THAT(ValidationError(job), HasSubstr("h.weight: shape[0] is 0, must be >= 1"));
  }
}

// [C3], edge 9: unknown norm groups are an error, wherever they are named.
TEST(ValidationTest, RefusesANormGroupThatIsNotDeclared) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_norm_group("mtp");
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("parameter h.bias: norm_group is \"mtp\""),
                                          HasSubstr("none of the job's 1 norm groups: main")));
  job.add_norm_groups()->set_name("mtp");
  EXPECT_EQ(ValidationError(job), "OK");
  job.mutable_groups(0)->set_norm_group("elsewhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("group matrices: norm_group is \"elsewhere\""));
  job.mutable_groups(0)->set_norm_group("main");
  job.add_norm_groups()->set_name("mtp");
  EXPECT_THAT(ValidationError(job), HasSubstr("norm_groups.name \"mtp\" is there twice"));
  job.mutable_norm_groups(1)->set_name("main");
  EXPECT_EQ(ValidationError(job), "OK");
  job.mutable_norm_groups(1)->set_max_grad_norm(-1);
  EXPECT_THAT(ValidationError(job), HasSubstr("max_grad_norm is -1"));
}

TEST(ValidationTest, RefusesClippingOptionsOutOfRange) {
  v1::JobDefinition job = SmallJob();
  job.set_clip_floor(1.5);
  EXPECT_THAT(ValidationError(job), HasSubstr("clip_floor is 1.5, must be 0 .. 1"));
  job.set_clip_floor(1);
  job.set_grad_norm_skip_threshold(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("grad_norm_skip_threshold is 0"));
  job.set_grad_norm_skip_threshold(1e300);
  job.set_clip_scope(static_cast<v1::ClipScope>(8));
  EXPECT_THAT(ValidationError(job), HasSubstr("clip_scope is 8, must be one of live, all"));
  job.clear_clip_scope();
  job.set_report_norms(static_cast<v1::ReportNorms>(8));
  EXPECT_THAT(ValidationError(job), HasSubstr("report_norms is 8, must be one of on, off"));
}

TEST(ValidationTest, RefusesWorkerLossOutOfRangeOrWithoutUse) {
  v1::JobDefinition job = SmallJob();
  job.set_worker_loss(static_cast<v1::WorkerLossPolicy>(8));
  EXPECT_THAT(ValidationError(job), HasSubstr("worker_loss is 8, must be one of wait, shrink"));
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_FAIL);
  EXPECT_EQ(ValidationError(job), "OK");
  for (const double seconds : {0.5, 86401.0, std::numeric_limits<double>::quiet_NaN()}) {
    job.set_worker_loss_seconds(seconds);
    EXPECT_THAT(ValidationError(job), HasSubstr("must be 1 .. 86400"));
  }
  job.set_worker_loss_seconds(1);
  EXPECT_EQ(ValidationError(job), "OK");
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_WAIT);
  EXPECT_THAT(ValidationError(job), HasSubstr("worker_loss_seconds is 1, must be unset"));
}

// Edge 51: options of the loss scaler ([T2b]) must be in range and in use.
TEST(ValidationTest, RefusesLossScalerOptionsOutOfRangeOrWithoutUse) {
  v1::JobDefinition job = SmallJob();
  v1::LossScaler& scaler = *job.mutable_loss_scaler();
  scaler.set_initial_scale(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.initial_scale is 0"));
  scaler.set_initial_scale(8);
  scaler.set_growth_interval(5);
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.growth_interval is set"));
  scaler.set_dynamic(true);
  EXPECT_EQ(ValidationError(job), "OK");
  scaler.set_growth_interval(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.growth_interval is 0, must be 1 .. "));
  scaler.set_growth_interval(1);
  scaler.set_hysteresis(0);
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.hysteresis is 0"));
  scaler.set_hysteresis(1);
  scaler.set_min_scale(std::numeric_limits<double>::infinity());
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.min_scale is inf"));
}

// [T2b]: an overflow would have to raise it.
TEST(ValidationTest, RefusesALossScaleThatBeginsBelowItsMinimum) {
  v1::JobDefinition job = SmallJob();
  v1::LossScaler& scaler = *job.mutable_loss_scaler();
  scaler.set_dynamic(true);
  scaler.set_initial_scale(0.5);
  EXPECT_THAT(ValidationError(job),
              HasSubstr("loss_scaler.min_scale is 1, must be <= loss_scaler.initial_scale, which "
                        "is 0.5"));
  scaler.set_min_scale(0.5);
  EXPECT_EQ(ValidationError(job), "OK");
  scaler.set_initial_scale(1);
  scaler.set_min_scale(1024);
  EXPECT_THAT(ValidationError(job), HasSubstr("loss_scaler.min_scale is 1024"));
}

// A copy must equal its original in shape and route ([C2]).
TEST(ValidationTest, RefusesACopyThatCannotBeOne) {
  v1::JobDefinition job = SmallJob();
  v1::ParameterSpec& copy = *job.add_parameters();
  copy = job.parameters(1);
  copy.set_name("copy");
  copy.set_tied_to("h.bias");
  EXPECT_EQ(ValidationError(job), "OK");
  copy.set_tied_to("nothing");
  EXPECT_THAT(ValidationError(job),
              HasSubstr("parameter copy: tied_to is \"nothing\", which is no"));
  copy.set_tied_to("copy");
  EXPECT_THAT(ValidationError(job), HasSubstr("the parameter itself"));
  copy.set_tied_to("h.weight");
  EXPECT_THAT(ValidationError(job), HasSubstr("shape is [4, 6], must be that of the copy, [6]"));
  copy.set_tied_to("h.bias");
  job.mutable_parameters(1)->set_tied_to("copy");
  EXPECT_THAT(ValidationError(job), HasSubstr("itself a copy"));
  job.mutable_parameters(1)->clear_tied_to();
  job.mutable_parameters(1)->set_frozen(true);
  EXPECT_THAT(ValidationError(job), AllOf(HasSubstr("parameter copy: tied_to is \"h.bias\""),
                                          HasSubstr("whose frozen is true, must be that of")));
  copy.set_frozen(true);
  EXPECT_EQ(ValidationError(job), "OK");
  copy.set_transposed(true);
  EXPECT_THAT(ValidationError(job), HasSubstr("whose transposed is false, must be that of"));
}

TEST(ValidationTest, RefusesMultipliersOutOfRangeAlsoAsAProduct) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_lr_multiplier(-1);
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: lr_multiplier is -1"));
  job.mutable_parameters(0)->set_lr_multiplier(1e38);
  job.mutable_groups(0)->set_lr(1e3);
  EXPECT_THAT(ValidationError(job),
              HasSubstr("lr 1000 * lr_multiplier 1e+38 is 1e+41, must be 0 .. 3.40282e+38"));
  job.mutable_parameters(0)->set_lr_multiplier(0);
  job.mutable_parameters(0)->set_weight_decay_multiplier(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(ValidationError(job), HasSubstr("weight_decay_multiplier is nan"));
}

TEST(ValidationTest, RefusesAttributesThatAreNoNames) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->add_attributes("Not a name");
  EXPECT_THAT(ValidationError(job), HasSubstr("parameter h.weight: attributes is \"Not a name\""));
  job.mutable_parameters(0)->clear_attributes();
  for (int i = 0; i < 17; ++i) job.mutable_parameters(0)->add_attributes("a");
  EXPECT_THAT(ValidationError(job), HasSubstr("attributes has 17 entries, must be 0 .. 16"));
}

TEST(ValidationTest, RefusesRoutingRulesThatCannotApply) {
  v1::JobDefinition job = SmallJob();
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name("mine");
  EXPECT_THAT(ValidationError(job), HasSubstr("routing rule mine: sets nothing"));
  rule.set_group("nowhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("routing rule mine: group is \"nowhere\""));
  rule.set_group("scalars");
  EXPECT_EQ(ValidationError(job), "OK");
  rule.set_norm_group("nowhere");
  EXPECT_THAT(ValidationError(job), HasSubstr("routing rule mine: norm_group is \"nowhere\""));
  rule.clear_norm_group();
  rule.set_min_ndim(3);
  rule.set_max_ndim(2);
  EXPECT_THAT(ValidationError(job), HasSubstr("min_ndim is 3, must be 0 .. max_ndim, which is 2"));
  rule.clear_max_ndim();
  rule.set_name_glob(std::string(1025, 'a'));
  EXPECT_THAT(ValidationError(job), HasSubstr("bytes of name_glob is 1025"));
  rule.clear_name_glob();
  rule.set_name_regex("(");
  EXPECT_THAT(ValidationError(job), HasSubstr("name_regex \"(\" is no RE2"));
  rule.clear_name_regex();
  rule.mutable_layout();
  EXPECT_THAT(ValidationError(job), HasSubstr("layout.kind is unset"));
  rule.clear_layout();
  rule.set_attribute("Bad");
  EXPECT_THAT(ValidationError(job), HasSubstr("routing rule mine: attribute is \"Bad\""));
  rule.clear_attribute();
  *job.add_routing_rules() = rule;
  EXPECT_THAT(ValidationError(job), HasSubstr("routing_rules.name \"mine\" is there twice"));
}

TEST(ValidationTest, RefusesMoreThanTheLimits) {
  v1::JobDefinition job = SmallJob();
  for (int i = 0; i < 101; ++i) job.add_norm_groups()->set_name(absl::StrCat("n", i));
  EXPECT_THAT(ValidationError(job), HasSubstr("norm_groups has 101 entries, must be 0 .. 100"));
  job.clear_norm_groups();
  for (int i = 0; i < 1001; ++i) job.add_routing_rules()->set_name(absl::StrCat("n", i));
  EXPECT_THAT(ValidationError(job), HasSubstr("routing_rules has 1001 entries"));
  job.clear_routing_rules();
  for (int i = 0; i < 1000; ++i) {
    *job.add_groups() = job.groups(1);
    job.mutable_groups(i + 2)->set_name(absl::StrCat("n", i));
  }
  EXPECT_THAT(ValidationError(job), HasSubstr("groups has 1002 entries, must be 1 .. 1000"));
}

// A group without parameters is legal ([T8]); this is edge 19.
TEST(ValidationTest, AcceptsEmptyGroups) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_frozen(true);
  *job.add_groups() = job.groups(0);
  job.mutable_groups(2)->set_name("spare");
  EXPECT_EQ(ValidationError(job), "OK");
}

// Edge 49: groups differ by their names, not by their values.
TEST(ValidationTest, AcceptsTwoGroupsThatDifferByNameOnly) {
  v1::JobDefinition job = SmallJob();
  *job.add_groups() = job.groups(1);
  EXPECT_THAT(ValidationError(job), HasSubstr("groups.name \"scalars\" is there twice"));
  job.mutable_groups(2)->set_name("scalars-too");
  job.mutable_parameters(0)->set_group("scalars-too");
  EXPECT_EQ(ValidationError(job), "OK");
}

// Edge 31: a layout must fit the parameter ([L4], [L5]), whichever rule steps it, even if none
// does.
TEST(ValidationTest, RefusesADeclaredLayoutThatDoesNotFitWhateverTheRoute) {
  v1::JobDefinition job = SmallJob();
  v1::ParameterSpec& parameter = *job.mutable_parameters(0);
  v1::MatrixLayout& layout = *parameter.mutable_layout();
  const auto expect_refused = [&job, &parameter](const std::string& message) {
    const std::string expected = "parameter h.weight: layout " + message;
    parameter.clear_group();
    EXPECT_THAT(ValidationError(job), HasSubstr(expected));
    parameter.set_group("scalars");
    EXPECT_THAT(ValidationError(job), HasSubstr(expected));
    parameter.clear_group();
    parameter.set_frozen(true);
    EXPECT_THAT(ValidationError(job), HasSubstr(expected));
    parameter.set_frozen(false);
  };
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  layout.set_num_heads(3);
  expect_refused("heads: rows 4 are not a multiple of num_heads 3");
  layout.clear_num_heads();
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS);
  layout.add_sizes(2);
  layout.add_sizes(1);
  expect_refused("split_rows: sizes 2 + 1 = 3 are not the 4 rows");
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_QKV_INTERLEAVED);
  expect_refused("qkv_interleaved: rows 4 are not a multiple of sizes 2 + 1 = 3");
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_BATCHED);
  expect_refused("batched needs >= 3 dimensions, shape [4, 6] has 2");
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
  expect_refused("matrix takes no sizes, given 2, 1");
  layout.clear_sizes();
  parameter.set_group("scalars");
  EXPECT_EQ(ValidationError(job), "OK");
}

// A rule's layout says how matrices are cut. Parameters that are stepped by elements ignore it.
TEST(ValidationTest, ARulesLayoutCountsForMuonAlone) {
  v1::JobDefinition job = SmallJob();
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name("all");
  rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  rule.mutable_layout()->set_num_heads(2);
  EXPECT_EQ(ValidationError(job), "OK");
  rule.mutable_layout()->set_num_heads(3);
  EXPECT_THAT(ValidationError(job),
              HasSubstr("parameter h.weight, group matrices: layout heads: rows 4 are not"));
}

// Frozen overrides all other fields of the parameter ([T8]).
TEST(ValidationTest, AFrozenParameterMayNameWhatItDoesNotTake) {
  v1::JobDefinition job = SmallJob();
  job.add_norm_groups()->set_name("mtp");
  v1::ParameterSpec& parameter = *job.mutable_parameters(0);
  parameter.set_frozen(true);
  parameter.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
  parameter.set_group("matrices");
  parameter.set_norm_group("mtp");
  parameter.set_lr_multiplier(2);
  parameter.set_weight_decay_multiplier(2);
  EXPECT_EQ(ValidationError(job), "OK");
  EXPECT_EQ(Resolve(job)->placement().parameters(0).ShortDebugString(), "route_reason: \"frozen\"");
  parameter.set_group("mistyped");
  EXPECT_THAT(ValidationError(job), HasSubstr("group is \"mistyped\", which is none"));
}

// Memory that depends on one worker's request has a bound.
TEST(ValidationTest, BoundsTheContributionsOfAStep) {
  EXPECT_TRUE(ValidateContributions(1024, 1000, 4).ok());
  EXPECT_TRUE(ValidateContributions(1, 100000, 256).ok()) << "one is always allowed";
  EXPECT_TRUE(ValidateContributions(1024, 0, 1).ok());
  EXPECT_TRUE(ValidateContributions(104, 10000, 4).ok());
  EXPECT_EQ(ValidateContributions(105, 10000, 4),
            absl::InvalidArgumentError(
                "micro_batches is 105, must be 1 .. 104 with 10000 parameters and 4 workers"));
}

}  // namespace
}  // namespace kaon::job
