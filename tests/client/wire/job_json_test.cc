#include "client/wire/job_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace kaon::client {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = R"({"name": "small", "world_size": 2, "matrix_group": "matrices",
    "groups": [{"name": "matrices", "rule": "RULE_MUON", "lr": 0.02, "muon": {"nesterov": false}}],
    "parameters": [{"name": "w", "shape": [4, 6], "dtype": "DTYPE_BFLOAT16"}]})";

TEST(JobJsonTest, ReadsADefinitionAndLeavesUnsetWhatItLacks) {
  const kaon::JobDefinition job = ParseJobDefinition(kText).value();
  EXPECT_EQ(job.name, "small");
  EXPECT_EQ(job.world_size, 2u);
  ASSERT_EQ(job.groups.size(), 1u);
  EXPECT_EQ(job.groups[0].rule, Rule::kMuon);
  EXPECT_EQ(job.groups[0].lr, 0.02);
  EXPECT_EQ(job.groups[0].muon.nesterov, false);
  EXPECT_EQ(job.groups[0].weight_decay, std::nullopt);
  ASSERT_EQ(job.parameters.size(), 1u);
  EXPECT_EQ(job.parameters[0].shape, (std::vector<uint64_t>{4, 6}));
  EXPECT_EQ(job.parameters[0].dtype, DType::kBFloat16);
  EXPECT_EQ(job.max_grad_norm, std::nullopt);
}

TEST(JobJsonTest, HasTheDefaultsOfTheCppStructs) {
  const kaon::JobDefinition job = ParseJobDefinition(R"({"parameters": [{"name": "w"}]})").value();
  EXPECT_EQ(job.world_size, kaon::JobDefinition().world_size);
  EXPECT_EQ(job.parameters[0].dtype, kaon::ParameterSpec().dtype);
}

TEST(JobJsonTest, NamesAnUnknownField) {
  const absl::Status status =
      ParseJobDefinition(R"({"name": "small", "learning_rate": 1})").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("learning_rate"));
}

TEST(JobJsonTest, RefusesTextThatIsNoJson) {
  EXPECT_EQ(ParseJobDefinition("{").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseJobDefinition("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(JobJsonTest, WritesADescriptionThatOthersCanRead) {
  kaon::JobDescription description;
  description.definition = ParseJobDefinition(kText).value();
  kaon::ParameterRoute route;
  route.group = "matrices";
  route.reason = "a \"quoted\" reason";
  route.shard = 1;
  description.routes = {route};
  description.timeline = 3;
  description.applied_step = 41;
  description.weights_loaded = true;
  description.shard_addresses = {"host:1"};
  const nlohmann::json read = nlohmann::json::parse(DescriptionJson(description).value());
  EXPECT_EQ(read["timeline"], 3);
  EXPECT_EQ(read["applied_step"], 41);
  EXPECT_EQ(read["weights_loaded"], true);
  EXPECT_EQ(read["shard_addresses"][0], "host:1");
  EXPECT_EQ(read["routes"][0]["group"], "matrices");
  EXPECT_EQ(read["routes"][0]["reason"], route.reason);
  EXPECT_EQ(read["routes"][0]["shard"], 1);
  EXPECT_EQ(read["definition"]["world_size"], 2);
  // The definition in it is one that ParseJobDefinition reads.
  EXPECT_EQ(ParseJobDefinition(read["definition"].dump())->groups[0].lr, 0.02);
}

}  // namespace
}  // namespace kaon::client
