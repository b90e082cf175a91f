#include "server/admin_cli/output.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

using Json = nlohmann::ordered_json;

TEST(OutputTest, YamlHasBlocksAndQuotedStrings) {
  const Json json = {{"job", "run: 1"},
                     {"step", 3},
                     {"digest", nullptr},
                     {"empty", Json::array()},
                     {"shards", {{{"shard", 0}, {"ranks", {1, 2}}}, {{"shard", 1}}}},
                     {"ballot", {{"counter", 7}}}};
  EXPECT_EQ(ToYaml(json),
            "job: \"run: 1\"\n"
            "step: 3\n"
            "digest: null\n"
            "empty: []\n"
            "shards:\n"
            "  - shard: 0\n"
            "    ranks:\n"
            "      - 1\n"
            "      - 2\n"
            "  - shard: 1\n"
            "ballot:\n"
            "  counter: 7\n");
  EXPECT_EQ(ToYaml(Json::object()), "{}\n");
}

TEST(OutputTest, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(ToJsonText({{"a", "\xff"}}), "{\n  \"a\": \"\xef\xbf\xbd\"\n}\n");
  EXPECT_EQ(ToYaml({{"a", "\xff"}}), "a: \"\xef\xbf\xbd\"\n");
}

}  // namespace
}  // namespace kaon::admin_cli
