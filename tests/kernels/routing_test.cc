#include "kernels/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kaon::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const RoutingTargets kBoth = {"hidden", "rest"};

RoutingInput Matrix(const std::string& name) { return {name, {4, 4}, "", false, false}; }

// "group: reason", or the status.
std::string Routed(const RoutingInput& parameter, const RoutingTargets& targets = kBoth) {
  const absl::StatusOr<Route> route = RouteParameter(parameter, targets);
  if (!route.ok()) return route.status().ToString();
  return route->group + ": " + route->reason;
}

TEST(RoutingTest, MatricesGoToTheMatrixGroup) {
  EXPECT_EQ(Routed(Matrix("layers.0.attention.wq.weight")), "hidden: matrix");
}

// [routing 4]
TEST(RoutingTest, VectorsAndScalarsGoToTheScalarGroup) {
  EXPECT_EQ(Routed({"norm.bias", {4}, "", false, false}), "rest: ndim < 2");
  EXPECT_EQ(Routed({"temperature", {}, "", false, false}), "rest: ndim < 2");
}

// Edge case 38.
TEST(RoutingTest, EmbeddingAndOutputWordsStandBetweenBoundaries) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model.embed_tokens.weight", "rest: embedding or output: embed"},
      {"patch_embed", "rest: embedding or output: embed"},
      {"token_embedding.weight", "rest: embedding or output: embedding"},
      {"embeddings.word", "rest: embedding or output: embeddings"},
      {"LM_Head.weight", "rest: embedding or output: lm_head"},
      {"lm_head", "rest: embedding or output: lm_head"},
      {"transformer.wte.weight", "rest: embedding or output: wte"},
      {"transformer.WPE", "rest: embedding or output: wpe"},
      {"embedded_embed", "rest: embedding or output: embed"},
      {"mlp.embedded_gate", "hidden: matrix"},
      {"unembed.weight", "rest: embedding or output: unembed"},
      {"params/WTE/embedding", "rest: embedding or output: embedding"},
      {"a:lm_head-0", "rest: embedding or output: lm_head"},
      {"model.Output.weight", "rest: embedding or output: output"},
      {"film_head.weight", "hidden: matrix"},
      {"newpe.weight", "hidden: matrix"},
      {"wte2.weight", "hidden: matrix"},
  };
  for (const auto& [name, expected] : cases) EXPECT_EQ(Routed(Matrix(name)), expected) << name;
}

// [routing 5]
TEST(RoutingTest, DeclaredEmbeddingNeedsNoName) {
  RoutingInput parameter = Matrix("table");
  parameter.is_embedding_or_output = true;
  EXPECT_EQ(Routed(parameter), "rest: embedding or output: declared");
}

// [routing 6], edge 38.
TEST(RoutingTest, AdaptersGoToTheScalarGroup) {
  EXPECT_EQ(Routed(Matrix("layers.0.q_proj.lora_A.weight")), "rest: adapter: lora");
  EXPECT_EQ(Routed(Matrix("layers.0.LoRA_b")), "rest: adapter: lora");
}

// [routing 1]
TEST(RoutingTest, ExplicitGroupBeatsEveryOtherRule) {
  RoutingInput parameter = {"lm_head.lora", {2, 3, 4}, "mine", true, false};
  EXPECT_EQ(Routed(parameter), "mine: explicit");
  parameter.shape = {7};
  EXPECT_EQ(Routed(parameter), "mine: explicit");
}

// Frozen parameters join no group ([T8]), not even an explicit one.
// [routing 3]
TEST(RoutingTest, FrozenParametersJoinNoGroupNotEvenAnExplicitOne) {
  RoutingInput parameter = {"conv.weight", {2, 3, 4}, "", false, true};
  EXPECT_EQ(Routed(parameter), ": frozen");
  parameter.group = "mine";
  EXPECT_EQ(Routed(parameter), ": frozen");
}

// Rule 2 stands between the explicit group and everything that looks at shape and name.
// [routing 2]
TEST(RoutingTest, AUsersRuleBeatsShapeAndNameButNotAnExplicitGroup) {
  RoutingInput parameter = {"lm_head.lora", {2, 3, 4}, "", true, false};
  parameter.rule_group = "mine";
  parameter.rule_name = "experts";
  EXPECT_EQ(Routed(parameter), "mine: rule experts");
  parameter.shape = {7};
  EXPECT_EQ(Routed(parameter), "mine: rule experts");
  parameter.group = "other";
  EXPECT_EQ(Routed(parameter), "other: explicit");
  parameter.frozen = true;
  EXPECT_EQ(Routed(parameter), ": frozen");
}

// [routing 7]
TEST(RoutingTest, ADeclaredLayoutRoutesMoreDimensionsToTheMatrixGroup) {
  RoutingInput parameter = {"experts.up", {8, 3, 3}, "", false, false};
  parameter.has_layout = true;
  EXPECT_EQ(Routed(parameter), "hidden: matrices by layout");
  parameter.name = "wte";
  EXPECT_EQ(Routed(parameter), "rest: embedding or output: wte");
}

// Nothing in this job needs to know the parameter's matrices ([routing 7], the first case).
TEST(RoutingTest, WithoutAMatrixRuleNoLayoutIsNeeded) {
  const RoutingInput conv = {"conv.weight", {8, 3, 3}, "", false, false};
  EXPECT_EQ(Routed(conv, {"", "adam", false}), "adam: matrix routed to scalar: no matrix group");
  EXPECT_EQ(Routed(conv, {"sgd", "adam", false}), "sgd: ndim > 2: no group needs a layout");
}

// Without a group or a layout, such a parameter is rejected ([routing 7]): it may have been meant
// for the group with the matrix rule. This holds even if matrices do not go there by default.
TEST(RoutingTest, MoreThanTwoDimensionsNeedAGroupOrALayout) {
  for (const char* matrix_group : {"hidden", ""}) {
    RoutingInput conv = {"conv.weight", {8, 3, 3}, "", false, false};
    const RoutingTargets targets = {matrix_group, "rest", true};
    const absl::Status status = RouteParameter(conv, targets).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("conv.weight"), HasSubstr("3 dim")));
    conv.has_layout = true;
    EXPECT_TRUE(RouteParameter(conv, targets).ok());
    conv.has_layout = false;
    conv.group = "rest";
    EXPECT_EQ(Routed(conv, targets), "rest: explicit");
  }
}

TEST(RoutingTest, EarlierRulesStillApplyAboveTwoDimensions) {
  EXPECT_EQ(Routed({"patch_embed.weight", {8, 3, 3}, "", false, false}),
            "rest: embedding or output: embed");
}

TEST(RoutingTest, JobWithoutAMatrixGroupSendsMatricesToTheScalarGroup) {
  EXPECT_EQ(Routed(Matrix("w"), {"", "adam"}), "adam: matrix routed to scalar: no matrix group");
}

TEST(RoutingTest, MatrixOnlyJobNeedsNoScalarGroupForMatrices) {
  EXPECT_EQ(Routed(Matrix("w"), {"hidden", ""}), "hidden: matrix");
}

TEST(RoutingTest, MissingScalarGroupIsRefusedNamingBothGroups) {
  for (const RoutingInput& parameter :
       {RoutingInput{"norm.bias", {4}, "", false, false}, Matrix("norm.bias.wte")}) {
    const absl::Status status = RouteParameter(parameter, {"hidden", ""}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("norm.bias"), HasSubstr("\"hidden\""), HasSubstr("\"\"")));
  }
  EXPECT_EQ(RouteParameter(Matrix("w"), {"", ""}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::kernels
