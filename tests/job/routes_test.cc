#include "job/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/effective_job.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RoutesTest, SendsMatricesToMuonAndTheRestToTheScalarGroup) {
  const auto routes = RouteParameters(*Effective(SmallJob()));
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->parameters(0).group(), "matrices");
  EXPECT_EQ(routes->parameters(0).layout().kind(), v1::MATRIX_LAYOUT_KIND_MATRIX);
  EXPECT_EQ(routes->parameters(1).group(), "scalars");
  EXPECT_FALSE(routes->parameters(1).has_layout());
  EXPECT_EQ(routes->parameters(1).norm_group(), "main");
}

// A frozen parameter joins no group and has no state ([T8]).
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
  EXPECT_THAT(std::string(status.message()), HasSubstr("routing rule typo matches 0 parameters"));
  rule.set_may_match_none(true);
  EXPECT_TRUE(RouteParameters(*Effective(job)).ok());
}

// A rule that needs a missing group is refused for the parameter that it matches.
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
  EXPECT_THAT(std::string(status.message()), HasSubstr("elsewhere"));
}

// A parameter's own values come first (rule 1 of section 2 of numerics.md).
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

// A rule may declare the layout, too ([routing 7]).
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

// If the job has a Muon group, a parameter of three dimensions must declare a layout or a group
// ([routing 7]). This holds even if matrices do not go to the group by default. An element-wise
// rule steps the parameter if the job has no Muon.
TEST(RoutesTest, ThreeDimensionsWithoutALayoutNeedAJobWithoutMuon) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->add_shape(3);
  EXPECT_EQ(RouteParameters(*Effective(job)).status().code(), absl::StatusCode::kInvalidArgument);
  job.clear_matrix_group();
  EXPECT_THAT(std::string(RouteParameters(*Effective(job)).status().message()),
              HasSubstr("parameter h.weight: has 3 dimensions"));
  job.mutable_groups()->DeleteSubrange(0, 1);
  const v1::ParameterPlacement row = RouteParameters(*Effective(job))->parameters(0);
  EXPECT_EQ(row.group(), "scalars");
  EXPECT_EQ(row.route_reason(), "matrix routed to scalar: no matrix group");
  EXPECT_FALSE(row.has_layout());
  job.set_matrix_group("scalars");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).route_reason(),
            "ndim > 2: no group needs a layout");
}

// A user's rule routes the routers of mixtures of experts to AdamW; by default there is none.
TEST(RoutesTest, RoutersGoToAdamWByARule) {
  v1::JobDefinition job = SmallJob();
  job.mutable_parameters(0)->set_name("layers.0.router.weight");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).group(), "matrices");
  v1::RoutingRule& rule = AddRule(job, "routers");
  rule.set_name_glob("*.router.weight");
  rule.set_group("scalars");
  EXPECT_EQ(RouteParameters(*Effective(job))->parameters(0).route_reason(), "rule routers");
}

// A matrix "w" with a norm group and multipliers of its own, after its copy "copy.weight".
v1::JobDefinition TiedJob() {
  v1::JobDefinition job = SmallJob();
  job.add_norm_groups()->set_name("mtp");
  v1::ParameterSpec& copy = *job.mutable_parameters(0);
  copy.set_name("copy.weight");
  copy.set_tied_to("w");
  v1::ParameterSpec& original = *job.add_parameters();
  original = copy;
  original.set_name("w");
  original.clear_tied_to();
  original.set_norm_group("mtp");
  original.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_HEADS);
  original.mutable_layout()->set_num_heads(2);
  original.set_lr_multiplier(0.5);
  original.set_weight_decay_multiplier(0.25);
  return job;
}

// [C2], edge 33: a copy is stepped as its original, but not counted.
TEST(RoutesTest, ACopyHasTheRouteOfItsOriginal) {
  const v1::Placement routes = *RouteParameters(*Effective(TiedJob()));
  v1::ParameterPlacement expected = routes.parameters(2);
  EXPECT_EQ(expected.group(), "matrices");
  EXPECT_EQ(expected.layout().num_heads(), 2u);
  EXPECT_TRUE(expected.counted());
  expected.set_parameter_id(0);
  expected.set_route_reason("copy of w");
  expected.set_counted(false);
  EXPECT_EQ(routes.parameters(0).DebugString(), expected.DebugString());
}

// Neither a copy's own fields nor a rule may change its route; repeating the original's value is
// allowed.
TEST(RoutesTest, ACopyMayNotAskForAnotherRoute) {
  struct Case {
    const char* field;
    void (*set)(v1::ParameterSpec&);
    void (*set_rule)(v1::RoutingRule&);
  };
  const Case cases[] = {
      {"group is \"scalars\"", [](auto& copy) { copy.set_group("scalars"); },
       [](auto& rule) { rule.set_group("scalars"); }},
      {"norm_group is \"main\"", [](auto& copy) { copy.set_norm_group("main"); },
       [](auto& rule) { rule.set_norm_group("main"); }},
      {"layout is matrix",
       [](auto& copy) {
         copy.clear_layout();
         copy.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
       },
       [](auto& rule) { rule.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX); }},
      {"lr_multiplier is 3", [](auto& copy) { copy.set_lr_multiplier(3); },
       [](auto& rule) { rule.set_lr_multiplier(3); }},
      {"weight_decay_multiplier is 3", [](auto& copy) { copy.set_weight_decay_multiplier(3); },
       [](auto& rule) { rule.set_weight_decay_multiplier(3); }},
  };
  for (const Case& refused : cases) {
    v1::JobDefinition job = TiedJob();
    refused.set(*job.mutable_parameters(0));
    const std::string field = std::string("parameter copy.weight: ") + refused.field;
    EXPECT_THAT(std::string(RouteParameters(*Effective(job)).status().message()),
                AllOf(HasSubstr(field), HasSubstr("that of parameter w")));
    refused.set(*job.mutable_parameters(2));
    EXPECT_TRUE(RouteParameters(*Effective(job)).ok()) << field;
    job = TiedJob();
    AddRule(job, "copies").set_name_glob("copy.*");
    refused.set_rule(*job.mutable_routing_rules(0));
    EXPECT_THAT(
        std::string(RouteParameters(*Effective(job)).status().message()),
        AllOf(HasSubstr(field), HasSubstr("rule copies"), HasSubstr("that of parameter w")));
  }
}

// A head that is tied to a table makes the table an embedding, whatever its own name is
// ([routing 5]).
TEST(RoutesTest, AnOriginalWithACopyThatIsAnEmbeddingIsOne) {
  for (const bool declared : {false, true}) {
    v1::JobDefinition job = TiedJob();
    job.mutable_parameters(0)->set_name(declared ? "copy.weight" : "lm_head.weight");
    job.mutable_parameters(0)->set_is_embedding_or_output(declared);
    const v1::Placement routes = *RouteParameters(*Effective(job));
    EXPECT_EQ(routes.parameters(0).group(), "scalars");
    EXPECT_EQ(routes.parameters(2).group(), "scalars");
    EXPECT_EQ(routes.parameters(2).route_reason(),
              "embedding or output: copy " + job.parameters(0).name());
  }
}

// Edge 22: the logical shape decides, not a trainer's storage. A parameter of 24 elements may be a
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

// Edge 39: a definition is a list, and routing it twice gives the same routes.
TEST(RoutesTest, AskingTwiceGivesTheSameRoutes) {
  const v1::JobDefinition job = *Effective(SmallJob());
  EXPECT_EQ(RouteParameters(job)->SerializeAsString(), RouteParameters(job)->SerializeAsString());
  EXPECT_EQ(RouteParameters(job)->parameters_size(), 2);
}

}  // namespace
}  // namespace kaon::job
