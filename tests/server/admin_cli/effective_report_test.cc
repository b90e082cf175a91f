#include "server/admin_cli/effective_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/resolve.h"
#include "tests/job/small_job.h"

namespace kaon::admin_cli {
namespace {

v1::JobDescription Job() {
  v1::JobDefinition requested = job::SmallJob();
  requested.set_preset("keller");
  const v1::RegisterBody body = *job::Resolve(requested);
  v1::JobDescription description;
  *description.mutable_definition() = body.definition();
  *description.mutable_requested() = body.requested();
  description.set_config_revision(1);
  return description;
}

TEST(EffectiveReportTest, EveryValueSaysWhereItComesFrom) {
  const Json json = EffectiveJson(Job());
  EXPECT_EQ(json["job"], "small");
  EXPECT_EQ(json["config_revision"], 1);
  int found = 0;
  for (const Json& value : json["values"]) {
    if (value["group"] == "matrices" && value["field"] == "muon.scale") {
      EXPECT_EQ(value["value"], "original");
      EXPECT_EQ(value["origin"], "preset keller");
      ++found;
    }
    EXPECT_FALSE(value["origin"].get<std::string>().empty()) << value;
  }
  EXPECT_EQ(found, 1);
}

TEST(EffectiveReportTest, TextHasARowPerValue) {
  const std::string text = EffectiveText(Job());
  EXPECT_THAT(text, ::testing::ContainsRegex("scalars +lr +0.001 +set"));
  EXPECT_THAT(text, ::testing::ContainsRegex("- +clip_scope +live +default"));
}

}  // namespace
}  // namespace kaon::admin_cli
