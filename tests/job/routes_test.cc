#include "job/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/effective.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

TEST(RoutesTest, SendsMatricesToMuonAndTheRestToTheScalarGroup) {
  const auto routes = RouteParameters(*Effective(SmallJob()));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->parameters(0).group(), "matrices");
  EXPECT_EQ(routes->parameters(0).layout().kind(), v1::MATRIX_LAYOUT_KIND_MATRIX);
  EXPECT_EQ(routes->parameters(1).group(), "scalars");
  EXPECT_FALSE(routes->parameters(1).has_layout());
  EXPECT_EQ(routes->parameters(1).norm_group(), "main");
}

// [T8]
TEST(RoutesTest, GivesAFrozenParameterNoGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_frozen(true);
  const auto routes = RouteParameters(*Effective(job));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->parameters(0).group(), "");
}

v1::RoutingRule& AddRule(v1::JobDefinition& job, const std::string& name) {
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name(name);
  return rule;
}

// Edge 51: the whole job is refused, not only noted.
TEST(RoutesTest, RefusesARuleThatNoParameterMatches) {
  v1::JobDefinition job = SmallJob();
  v1::RoutingRule& rule = AddRule(job, "typo");
  rule.set_name_glob("*.wieght");
  rule.set_lr_multiplier(2);
  const absl::Status status = RouteParameters(*Effective(job)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("routing rule typo matches 0 parameters"));
  rule.set_may_match_none(true);
  EXPECT_TRUE(RouteParameters(*Effective(job)).ok());
}

// A rule that would need a group the job lacks is refused where it is used.
TEST(RoutesTest, RuleNamesTheReason) {
  v1::JobDefinition job = SmallJob();
  AddRule(job, "heads").set_group("scalars");
  job.mutable_routing_rules(0)->set_name_glob("h.w*");
  const v1::Placement routes = *RouteParameters(*Effective(job));
  EXPECT_EQ(routes.parameters(0).group(), "scalars");
  EXPECT_EQ(routes.parameters(0).route_reason(), "rule heads");
  EXPECT_FALSE(routes.parameters(0).has_layout());
  EXPECT_EQ(routes.parameters(1).route_reason(), "ndim < 2");
  job.mutable_routing_rules(0)->set_group("elsewhere");
  const absl::Status status = RouteParameters(*Effective(job)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("elsewhere"));
}

// numerics.md section 2, rule 1: what the parameter says of itself comes first.
TEST(RoutesTest, TheParametersOwnValuesBeatRulesAndRulesBeatTheGroup) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(0)->set_norm_group("by-group");
  v1::RoutingRule& rule = AddRule(job, "all");
  rule.set_norm_group("by-rule");
  rule.set_lr_multiplier(0.5);
  rule.set_weight_decay_multiplier(0.25);
  rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  rule.mutable_layout()->set_num_heads(2);
  v1::ParameterPlacement row = RouteParameters(*Effective(job))->parameters(0);
  EXPECT_EQ(row.norm_group(), "by-rule");
  EXPECT_EQ(row.lr_multiplier(), 0.5);
  EXPECT_EQ(row.weight_decay_multiplier(), 0.25);
  EXPECT_EQ(row.layout().num_heads(), 2u);
  EXPECT_EQ(row.route_reason(), "matrix; also rule all");

  v1::ParameterSpec& parameter = *job.mutable_parameters(0);
  parameter.set_norm_group("own");
  parameter.set_lr_multiplier(0);
  parameter.set_weight_decay_multiplier(2);
  parameter.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
  row = RouteParameters(*Effective(job))->parameters(0);
  EXPECT_EQ(row.norm_group(), "own");
  EXPECT_EQ(row.lr_multiplier(), 0);
  EXPECT_EQ(row.weight_decay_multiplier(), 2);
  EXPECT_EQ(row.layout().kind(), v1::MATRIX_LAYOUT_KIND_MATRIX);
  EXPECT_EQ(row.route_reason(), "matrix");

  job.clear_routing_rules();
  parameter.clear_norm_group();
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).norm_group(), "by-group");
}

// [routing 7]; the layout may come from a rule.
TEST(RoutesTest, ADeclaredLayoutRoutesThreeDimensionsToMuon) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->add_shape(3);
  EXPECT_EQ(RouteParameters(*Effective(job)).status().code(), absl::StatusCode::kInvalidArgument);
  v1::RoutingRule& rule = AddRule(job, "experts");
  rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_BATCHED);
  const v1::ParameterPlacement row = RouteParameters(*Effective(job))->parameters(0);
  EXPECT_EQ(row.group(), "matrices");
  EXPECT_EQ(row.route_reason(), "matrices by layout; also rule experts");
  EXPECT_EQ(row.layout().kind(), v1::MATRIX_LAYOUT_KIND_BATCHED);
}

// [routing 7]: with a Muon group in the job, even one that matrices do not go to by themselves,
// three dimensions must say what they are; without one they are stepped by elements.
TEST(RoutesTest, ThreeDimensionsWithoutALayoutNeedAJobWithoutMuon) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->add_shape(3);
  EXPECT_EQ(RouteParameters(*Effective(job)).status().code(), absl::StatusCode::kInvalidArgument);
  job.clear_matrix_group();
  EXPECT_THAT(std::string(RouteParameters(*Effective(job)).status().message()),
              ::testing::HasSubstr("parameter h.weight: has 3 dimensions"));
  job.mutable_groups()->DeleteSubrange(0, 1);
  const v1::ParameterPlacement row = RouteParameters(*Effective(job))->parameters(0);
  EXPECT_EQ(row.group(), "scalars");
  EXPECT_EQ(row.route_reason(), "matrix routed to scalar: no matrix group");
  EXPECT_FALSE(row.has_layout());
  job.set_matrix_group("scalars");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).route_reason(),
            "ndim > 2: no group needs a layout");
}

// Routers of mixtures of experts by AdamW: a rule of the user's, off unless asked for.
TEST(RoutesTest, RoutersGoToAdamWByARule) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_name("layers.0.router.weight");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).group(), "matrices");
  v1::RoutingRule& rule = AddRule(job, "routers");
  rule.set_name_glob("*.router.weight");
  rule.set_group("scalars");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).route_reason(), "rule routers");
}

// [C2], edge 33: a copy is stepped, but not counted.
TEST(RoutesTest, ACopyIsNotCounted) {
  v1::JobDefinition job = SmallJob();
  *job.add_parameters() = job.parameters(1);
  job.mutable_parameters(2)->set_name("copy");
  job.mutable_parameters(2)->set_tied_to("h.bias");
  const v1::Placement routes = *RouteParameters(*Effective(job));
  EXPECT_TRUE(routes.parameters(1).counted());
  EXPECT_FALSE(routes.parameters(2).counted());
  EXPECT_EQ(routes.parameters(2).group(), "scalars");
}

// Edge 22: the logical shape decides, whatever a trainer's storage is: one of 24 elements is a
// matrix or not.
TEST(RoutesTest, TheShapeOfTheDefinitionDecides) {
  v1::JobDefinition job = SmallJob();
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).group(), "matrices");
  job.mutable_parameters(0)->clear_shape();
  job.mutable_parameters(0)->add_shape(24);
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).group(), "scalars");
  job.mutable_parameters(0)->add_shape(1);
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).group(), "matrices");
}

// Edge 19: with everything on one optimizer and the rest frozen, the other group is empty.
TEST(RoutesTest, AGroupMayStayEmpty) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(1)->set_frozen(true);
  AddRule(job, "all").set_lr_multiplier(3);
  const v1::Placement routes = *RouteParameters(*Effective(job));
  EXPECT_EQ(routes.parameters(0).group(), "matrices");
  EXPECT_EQ(routes.parameters(1).group(), "");
  EXPECT_EQ(routes.parameters(1).route_reason(), "frozen");
  EXPECT_EQ(routes.parameters(1).lr_multiplier(), 0);
}

// Edge 17: a group is found by its name, not by its place in the list.
TEST(RoutesTest, TheOrderOfGroupsChangesNoRoute) {
  v1::JobDefinition job = SmallJob();
  job.mutable_groups()->SwapElements(0, 1);
  const v1::Placement routes = *RouteParameters(*Effective(job));
  EXPECT_EQ(routes.parameters(0).group(), "matrices");
  EXPECT_TRUE(routes.parameters(0).has_layout());
  EXPECT_EQ(routes.parameters(1).group(), "scalars");
}

// Edge 39: a definition is a list; asking twice gives the same routes.
TEST(RoutesTest, AskingTwiceGivesTheSameRoutes) {
  const v1::JobDefinition job = *Effective(SmallJob());
  EXPECT_EQ(RouteParameters(job)->SerializeAsString(), RouteParameters(job)->SerializeAsString());
  EXPECT_EQ(RouteParameters(job)->parameters_size(), 2);
}

}  // namespace
}  // namespace kaon::job
