#include "job/routing_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::RoutingRule& AddRule(v1::JobDefinition& job, const std::string& name, int priority = 0) {
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name(name);
  rule.set_priority(priority);
  return rule;
}

v1::ParameterSpec Parameter(const std::string& name, const std::vector<uint64_t>& shape) {
  v1::ParameterSpec parameter;
  parameter.set_name(name);
  for (uint64_t dimension : shape) parameter.add_shape(dimension);
  return parameter;
}

// Returns the name of the rule that gives the parameter its group, "" if none, or the message.
std::string GroupRule(const v1::JobDefinition& job, const v1::ParameterSpec& parameter) {
  absl::StatusOr<RoutingRules> rules = RoutingRules::Create(job);
  if (!rules.ok()) return std::string(rules.status().message());
  const absl::StatusOr<RuleOutcome> outcome = rules->Match(parameter);
  if (!outcome.ok()) return std::string(outcome.status().message());
  return outcome->group == nullptr ? "" : outcome->group->name();
}

TEST(RoutingRulesTest, EveryPredicateHasToHold) {
  v1::JobDefinition job;
  v1::RoutingRule& rule = AddRule(job, "experts");
  rule.set_group("g");
  rule.set_name_glob("*.experts.*");
  rule.set_name_regex("(up|down)$");
  rule.set_attribute("moe");
  rule.set_min_ndim(2);
  rule.set_max_ndim(3);
  rule.set_min_elements(4);
  rule.set_max_elements(8);
  v1::ParameterSpec fits = Parameter("h.experts.up", {2, 4});
  fits.add_attributes("other");
  fits.add_attributes("moe");
  EXPECT_EQ(GroupRule(job, fits), "experts");

  v1::ParameterSpec no = fits;
  no.set_name("h.expert.up");
  EXPECT_EQ(GroupRule(job, no), "");
  no = fits;
  no.set_name("h.experts.up.x");
  EXPECT_EQ(GroupRule(job, no), "");
  no = fits;
  no.clear_attributes();
  EXPECT_EQ(GroupRule(job, no), "");
  for (const std::vector<uint64_t>& shape :
       std::vector<std::vector<uint64_t>>{{8}, {2, 2, 1, 1}, {1, 3}, {3, 3}}) {
    no = Parameter("h.experts.up", shape);
    no.add_attributes("moe");
    EXPECT_EQ(GroupRule(job, no), "") << shape.size();
  }
}

TEST(RoutingRulesTest, ARuleWithoutPredicatesMatchesEverything) {
  v1::JobDefinition job;
  AddRule(job, "all").set_group("g");
  EXPECT_EQ(GroupRule(job, Parameter("x", {})), "all");
}

TEST(RoutingRulesTest, HigherPriorityWinsFieldByField) {
  v1::JobDefinition job;
  v1::RoutingRule& low = AddRule(job, "low", -1);
  low.set_group("a");
  low.set_lr_multiplier(0.5);
  v1::RoutingRule& high = AddRule(job, "high", 1);
  high.set_group("b");
  high.set_norm_group("mtp");
  RoutingRules rules = *RoutingRules::Create(job);
  const RuleOutcome outcome = *rules.Match(Parameter("x", {2}));
  EXPECT_EQ(outcome.group->name(), "high");
  EXPECT_EQ(outcome.norm_group->name(), "high");
  EXPECT_EQ(outcome.lr_multiplier->name(), "low");
  EXPECT_EQ(outcome.layout, nullptr);
  EXPECT_EQ(outcome.weight_decay_multiplier, nullptr);
}

TEST(RoutingRulesTest, EqualPriorityMayAgreeButNotContradict) {
  v1::JobDefinition job;
  AddRule(job, "one", 3).set_lr_multiplier(0.5);
  AddRule(job, "two", 3).set_lr_multiplier(0.5);
  AddRule(job, "three", 3).set_weight_decay_multiplier(0);
  EXPECT_EQ(GroupRule(job, Parameter("x", {2})), "");
  job.mutable_routing_rules(1)->set_lr_multiplier(0.25);
  EXPECT_THAT(GroupRule(job, Parameter("w.x", {2})),
              AllOf(HasSubstr("parameter w.x"), HasSubstr("one and two"), HasSubstr("priority 3"),
                    HasSubstr("lr_multiplier is 0.5 and 0.25")));
  // Decided above both, the contradiction does not matter.
  AddRule(job, "above", 4).set_lr_multiplier(1);
  EXPECT_EQ(GroupRule(job, Parameter("x", {2})), "");
}

TEST(RoutingRulesTest, LayoutsContradictByAnyOfTheirFields) {
  v1::JobDefinition job;
  v1::MatrixLayout& one = *AddRule(job, "one").mutable_layout();
  one.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS);
  one.add_sizes(2);
  v1::MatrixLayout& two = *AddRule(job, "two").mutable_layout();
  two = one;
  EXPECT_EQ(GroupRule(job, Parameter("x", {2, 2})), "");
  two.set_sizes(0, 1);
  EXPECT_THAT(GroupRule(job, Parameter("x", {2, 2})),
              AllOf(HasSubstr("split_rows sizes [2]"), HasSubstr("split_rows sizes [1]")));
}

TEST(RoutingRulesTest, RefusesARegexThatIsNone) {
  v1::JobDefinition job;
  AddRule(job, "broken").set_name_regex("(");
  EXPECT_THAT(GroupRule(job, Parameter("x", {})),
              AllOf(HasSubstr("routing rule broken"), HasSubstr("name_regex \"(\"")));
  job.mutable_routing_rules(0)->set_name_regex("((((a{1,100}){1,100}){1,100}){1,100})");
  EXPECT_THAT(GroupRule(job, Parameter("x", {})), HasSubstr("routing rule broken"));
}

// Only a conflict that decides something is one.
TEST(RoutingRulesTest, WhatAParameterSaysItselfEndsAConflict) {
  v1::JobDefinition job;
  AddRule(job, "one").set_lr_multiplier(0.5);
  AddRule(job, "two").set_lr_multiplier(0.25);
  v1::ParameterSpec parameter = Parameter("x", {2});
  EXPECT_THAT(GroupRule(job, parameter), HasSubstr("contradict"));
  parameter.set_lr_multiplier(2);
  EXPECT_EQ(GroupRule(job, parameter), "");
  AddRule(job, "three").set_group("a");
  AddRule(job, "four").set_group("b");
  EXPECT_THAT(GroupRule(job, parameter), HasSubstr("three and four"));
  parameter.set_group("c");
  EXPECT_EQ(GroupRule(job, parameter), "");
}

// Edge 51: a mistyped name is found when the job is registered.
TEST(RoutingRulesTest, RefusesARuleThatMatchesNoParameter) {
  v1::JobDefinition job;
  AddRule(job, "weights").set_name_glob("*.weight");
  AddRule(job, "biases").set_name_glob("*.bais");
  RoutingRules rules = *RoutingRules::Create(job);
  ASSERT_TRUE(rules.Match(Parameter("h.bias", {2})).ok());
  EXPECT_THAT(rules.CheckEachMatched().message(), HasSubstr("routing rule weights matches 0"));
  ASSERT_TRUE(rules.Match(Parameter("h.weight", {2})).ok());
  EXPECT_THAT(rules.CheckEachMatched().message(),
              AllOf(HasSubstr("routing rule biases matches 0"), HasSubstr("may_match_none")));

  job.mutable_routing_rules(1)->set_may_match_none(true);
  rules = *RoutingRules::Create(job);
  ASSERT_TRUE(rules.Match(Parameter("h.weight", {2})).ok());
  EXPECT_TRUE(rules.CheckEachMatched().ok());
}

// Fine-tuning may freeze all parameters of a rule. The rule is not mistyped and sets nothing
// ([T8]).
TEST(RoutingRulesTest, AFrozenParameterMatchesButTakesNothing) {
  v1::JobDefinition job;
  AddRule(job, "one").set_lr_multiplier(0.5);
  AddRule(job, "two").set_lr_multiplier(0.25);
  v1::ParameterSpec frozen = Parameter("x", {2});
  frozen.set_frozen(true);
  RoutingRules rules = *RoutingRules::Create(job);
  const absl::StatusOr<RuleOutcome> outcome = rules.Match(frozen);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->lr_multiplier, nullptr);
  EXPECT_TRUE(rules.CheckEachMatched().ok());
}

TEST(RoutingRulesTest, ManyRulesOfManyPatternsStayApart) {
  v1::JobDefinition job;
  for (int i = 0; i < 1000; ++i) {
    v1::RoutingRule& rule = AddRule(job, absl::StrCat("r", i), i % 7);
    rule.set_group(absl::StrCat("g", i));
    rule.set_name_glob(absl::StrCat("*.", i, ".*"));
    if (i % 2 == 0) rule.set_name_regex("weight$");
  }
  EXPECT_EQ(GroupRule(job, Parameter("h.17.bias", {2})), "r17");
  EXPECT_EQ(GroupRule(job, Parameter("h.18.bias", {2})), "");
  EXPECT_EQ(GroupRule(job, Parameter("h.18.weight", {2})), "r18");
  EXPECT_EQ(GroupRule(job, Parameter("h.999.12.x", {2})), "r999");
}

// Registration runs on the one thread that answers the shards, so its work is bounded.
TEST(RoutingRulesTest, RefusesWhatWouldTakeTooLong) {
  v1::JobDefinition job;
  for (int i = 0; i < 65; ++i) {
    v1::RoutingRule& rule = AddRule(job, absl::StrCat("r", i));
    rule.set_group("g");
    rule.set_name_glob(std::string(1024, 'a'));
  }
  EXPECT_THAT(GroupRule(job, Parameter("x", {})),
              HasSubstr("routing_rules have 66560 bytes of name_glob and name_regex, must be 0 .. "
                        "65536"));

  job.clear_routing_rules();
  for (int i = 0; i < 1000; ++i) AddRule(job, absl::StrCat("r", i)).set_attribute("none");
  RoutingRules rules = *RoutingRules::Create(job);
  for (int i = 0; i < 16000; ++i) ASSERT_TRUE(rules.Match(Parameter("x", {})).ok());
  EXPECT_THAT(rules.Match(Parameter("y", {})).status().message(),
              AllOf(HasSubstr("parameter y"), HasSubstr("must be <= 16000000 for the whole job")));
}

// The pattern has a set of states for every subset of the last 200 characters. RE2 abandons its
// automaton and runs every instruction for every character.
TEST(RoutingRulesTest, RefusesPatternsThatCouldTakeTooLong) {
  v1::JobDefinition job;
  for (int i = 0; i < 40; ++i) {
    AddRule(job, absl::StrCat("r", i)).set_name_regex(absl::StrCat("[ab]*a[ab]{", 200 + i, "}c"));
  }
  RoutingRules rules = *RoutingRules::Create(job);
  absl::Status status;
  int matched = 0;
  for (; status.ok() && matched < 20000; ++matched) {
    status = rules.Match(Parameter(std::string(512, matched % 2 == 0 ? 'a' : 'b'), {})).status();
  }
  EXPECT_THAT(status.message(), HasSubstr("the product must be <= 34359738368"));
  EXPECT_GT(matched, 100);
}

}  // namespace
}  // namespace kaon::job
