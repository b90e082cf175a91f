#include "job/route_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The message for SmallJob, changed; or "OK".
std::string Refusal(const std::function<void(v1::JobDefinition&)>& change) {
  v1::JobDefinition job = SmallJob();
  change(job);
  const absl::Status status = Resolve(job).status();
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string MuonRefusal(double lr, double scale_extra) {
  return Refusal([&](v1::JobDefinition& job) {
    job.mutable_groups(0)->set_lr(lr);
    job.mutable_groups(0)->mutable_muon()->set_scale_extra(scale_extra);
  });
}

// The factor of an update is a float ([S1]).
TEST(RouteValidationTest, RefusesAStepSizeThatIsInfiniteWithTheScale) {
  EXPECT_EQ(MuonRefusal(0.1, 3e38), "OK");
  EXPECT_THAT(MuonRefusal(10, 3e38),
              AllOf(HasSubstr("parameter h.weight, group matrices: lr 10 * lr_multiplier 1 * "
                              "update scale "),
                    HasSubstr("of a matrix of 4 x 6"), HasSubstr("must be 0 .. 3.40282e+38")));
}

// [A2]: the first step divides by 1 - beta1.
TEST(RouteValidationTest, RefusesAnAdamStepThatIsInfiniteByItsCorrection) {
  const auto adamw = [](double lr, bool corrected) {
    return Refusal([&](v1::JobDefinition& job) {
      job.mutable_groups(1)->set_lr(lr);
      job.mutable_groups(1)->mutable_adamw()->set_bias_correction(corrected);
    });
  };
  EXPECT_EQ(adamw(3e37, true), "OK");
  EXPECT_EQ(adamw(1e38, false), "OK");
  EXPECT_THAT(adamw(1e38, true), HasSubstr("parameter h.bias, group scalars: lr 1e+38 * "
                                           "lr_multiplier 1 * 1 / (1 - beta1) = 10 is 1e+39"));
}

std::string DecayRefusal(v1::DecayMode mode, double lr, double decay, double multiplier = 1) {
  return Refusal([&](v1::JobDefinition& job) {
    job.mutable_groups(1)->set_decay_mode(mode);
    job.mutable_groups(1)->set_lr(lr);
    job.mutable_groups(1)->set_weight_decay(decay);
    job.mutable_parameters(1)->set_weight_decay_multiplier(multiplier);
  });
}

// [W1]: a weight that loses more than itself changes its sign at every step.
TEST(RouteValidationTest, RefusesADecayOfMoreThanTheWeight) {
  EXPECT_EQ(DecayRefusal(v1::DECAY_MODE_DECOUPLED, 0.5, 2), "OK");
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_DECOUPLED, 0.5, 2.5),
              HasSubstr("parameter h.bias, group scalars: decay of a step, weight_decay 2.5 * "
                        "weight_decay_multiplier 1 * lr 0.5 * lr_multiplier 1 is 1.25, must be 0 "
                        ".. 1"));
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_DECOUPLED, 1e20, 1e20), HasSubstr("decay of a step"));
  EXPECT_EQ(DecayRefusal(v1::DECAY_MODE_INDEPENDENT, 100, 1), "OK");
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_INDEPENDENT, 0.1, 1.5), HasSubstr("is 1.5, must be"));
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_INDEPENDENT, 0.1, 0.5, 3), HasSubstr("is 1.5, must be"));
  EXPECT_EQ(DecayRefusal(v1::DECAY_MODE_PALM, 0.5, 4), "OK");
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_PALM, 2, 0.5), HasSubstr("is 2, must be 0 .. 1"));
  EXPECT_EQ(DecayRefusal(v1::DECAY_MODE_L2, 10, 10), "OK");
  EXPECT_THAT(DecayRefusal(v1::DECAY_MODE_L2, 10, 1e38, 1e38),
              HasSubstr("weight_decay 1e+38 * weight_decay_multiplier 1e+38 is 1e+76"));
}

TEST(RouteValidationTest, AStepsMultiplierIsAFactorOfEveryProduct) {
  v1::JobDefinition definition = SmallJob();
  definition.mutable_groups(0)->set_lr(1);
  definition.mutable_groups(0)->mutable_muon()->set_scale_extra(1e38);
  definition.mutable_groups(1)->set_weight_decay(500);
  const v1::RegisterBody job = *Resolve(definition);
  const auto refusal = [&job](double multiplier, std::map<std::string, double> groups = {}) {
    return std::string(ValidateMultipliers(job.definition().groups(), job.definition(),
                                           job.placement(), {multiplier, std::move(groups)})
                           .message());
  };
  EXPECT_EQ(refusal(1), "");
  EXPECT_EQ(refusal(2), "");
  EXPECT_EQ(refusal(20, {{"matrices", 0.1}, {"scalars", 0.1}}), "");
  EXPECT_THAT(refusal(1, {{"scalars", 2.5}}),
              HasSubstr("weight_decay 500 * weight_decay_multiplier 1 * lr 0.001 * "
                        "learning_rate_multiplier 1 * multiplier of the group 2.5 * "
                        "lr_multiplier 1 is 1.25, must be 0 .. 1"));
  EXPECT_THAT(refusal(1, {{"matrices", 1e39}}),
              HasSubstr("group matrices: lr 1 * learning_rate_multiplier 1 * multiplier of the "
                        "group 1e+39 is 1e+39, must be 0 .. 3.40282e+38"));
  EXPECT_EQ(refusal(1, {{"nowhere", 1}}),
            "group_multipliers names group \"nowhere\", must be one of matrices, scalars");
  EXPECT_THAT(refusal(2.5), HasSubstr("parameter h.bias, group scalars: decay of a step, "
                                      "weight_decay 500 * weight_decay_multiplier 1 * lr 0.001 * "
                                      "learning_rate_multiplier 2.5 * lr_multiplier 1 is 1.25"));
  EXPECT_THAT(refusal(20), HasSubstr("group matrices: lr 1 * learning_rate_multiplier 20 * "
                                     "lr_multiplier 1 * update scale "));
}

TEST(RouteValidationTest, AStepsRateIsAFactorOfEveryProduct) {
  v1::JobDefinition definition = SmallJob();
  definition.mutable_groups(0)->set_lr(1);
  definition.mutable_groups(0)->mutable_muon()->set_scale_extra(1e38);
  definition.mutable_groups(1)->set_weight_decay(500);
  const v1::RegisterBody job = *Resolve(definition);
  const auto refusal = [&job](double matrices, double scalars) {
    return std::string(ValidateRates(job.definition().groups(), job.definition(), job.placement(),
                                     {matrices, scalars})
                           .message());
  };
  EXPECT_EQ(refusal(1, 0.001), "");
  EXPECT_EQ(refusal(2, 0.002), "");
  EXPECT_EQ(refusal(0, 0), "");
  EXPECT_THAT(refusal(1, 0.0025),
              HasSubstr("parameter h.bias, group scalars: decay of a step, weight_decay 500 * "
                        "weight_decay_multiplier 1 * learning rate 0.0025 * lr_multiplier 1 is "
                        "1.25"));
  EXPECT_THAT(refusal(20, 0.001), HasSubstr("group matrices: learning rate 20 * lr_multiplier 1 * "
                                            "update scale "));
}

TEST(RouteValidationTest, GroupsThatAreLeftOutAreNotLookedAt) {
  v1::RegisterBody job = *Resolve(SmallJob());
  job.mutable_definition()->mutable_groups(1)->set_lr(1e39);
  Groups groups = job.definition().groups();
  EXPECT_FALSE(ValidateRoutes(groups, job.definition(), job.placement()).ok());
  groups.RemoveLast();
  EXPECT_TRUE(ValidateRoutes(groups, job.definition(), job.placement()).ok());
}

// [L2]: many small matrices are legal, more than a step can walk through are not.
TEST(RouteValidationTest, LimitsThePiecesOfAllParametersTogether) {
  v1::JobDefinition job = SmallJob();
  const auto add = [&job](const std::string& name, uint64_t matrices) {
    v1::ParameterSpec& parameter = *job.add_parameters();
    parameter.set_name(name);
    for (const uint64_t dimension : {matrices, uint64_t{1}, uint64_t{1}}) {
      parameter.add_shape(dimension);
    }
    parameter.set_dtype(v1::DTYPE_FLOAT32);
    parameter.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_BATCHED);
  };
  // SmallJob has a matrix.
  add("a", kMostJobRowRuns - 2);
  add("b", 1);
  EXPECT_TRUE(Resolve(job).ok());
  add("c", 1);
  EXPECT_THAT(Resolve(job).status().message(),
              AllOf(HasSubstr("parameter c, group matrices: with its layout batched"),
                    HasSubstr("cut into 1048577 pieces or more, must be <= 1048576")));
}

// Returns the processor time, in seconds, of resolving a job of so many parameters and 100 rules.
double SecondsToResolve(int num_parameters) {
  v1::JobDefinition job = SmallJob();
  job.clear_parameters();
  for (int i = 0; i < 100; ++i) {
    v1::RoutingRule& rule = *job.add_routing_rules();
    rule.set_name(absl::StrCat("r", i));
    rule.set_name_glob(absl::StrCat("layers.*.", i, ".*weight*[a-z"));
    rule.set_name_regex(absl::StrCat("[", i % 10, "]+.*bias"));
    rule.set_lr_multiplier(0.5);
    rule.set_may_match_none(true);
  }
  for (int i = 0; i < num_parameters; ++i) {
    v1::ParameterSpec& parameter = *job.add_parameters();
    parameter.set_name(absl::StrCat("layers.", i / 100, ".experts.", i % 100, ".down_proj.weight"));
    parameter.add_shape(8);
    parameter.add_shape(8);
    parameter.set_dtype(v1::DTYPE_FLOAT32);
  }
  const std::clock_t start = std::clock();
  EXPECT_TRUE(Resolve(job).ok());
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// The thread that answers the shards resolves jobs, and a slow one looks dead to them. Quadratic
// work would take 16 times as long here. The largest job has 100000 parameters.
TEST(RouteValidationTest, ResolvingGrowsNoFasterThanTheParameters) {
  const double few = SecondsToResolve(2500);
  const double many = SecondsToResolve(10000);
  RecordProperty("seconds_of_10000", absl::StrCat(many));
  EXPECT_LT(many, 9 * few);
}

}  // namespace
}  // namespace kaon::job
