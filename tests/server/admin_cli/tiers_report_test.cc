#include "server/admin_cli/tiers_report.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace kaon::admin_cli {
namespace {

// A shard in memory, one with a disk, and one that did not answer.
v1::GetStatusResponse Status() {
  v1::GetStatusResponse status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        shards {
          shard: 0
          description { tiers { name: "cpu" parameters: 3 capacity_bytes: 4096 used_bytes: 1024 } }
        }
        shards {
          shard: 1
          description {
            tiers { name: "cpu" capacity_bytes: 4096 used_bytes: 2048 }
            tiers {
              name: "nvme"
              parameters: 2
              capacity_bytes: 8192
              used_bytes: 6144
              path: "/disk/kaon-parameters"
              disk_bytes: 1048576
              staging_bytes: 512
              read_bytes: 3072
              written_bytes: 2048
              read_seconds: 2
              hits: 3
              misses: 1
              waited_seconds: 0.5
              seconds: 86.4
            }
          }
        }
        shards { shard: 2 })pb",
      &status));
  return status;
}

TEST(TiersReportTest, RatesAreThoseOfTheTimeThatTheDiskWorked) {
  const Json tiers = TiersJson(Status())["tiers"];
  ASSERT_EQ(tiers.size(), 3u);
  EXPECT_EQ(tiers[0].dump(),
            R"({"shard":0,"tier":"cpu","parameters":3,"used_bytes":1024,"capacity_bytes":4096})");
  const Json& disk = tiers[2];
  EXPECT_EQ(disk["read_bytes_per_second"], 1536.0);
  // Nothing was timed.
  EXPECT_TRUE(disk["write_bytes_per_second"].is_null());
  EXPECT_EQ(disk["hit_rate"], 0.75);
  // 2048 bytes of 1 MiB in a thousandth of a day.
  EXPECT_DOUBLE_EQ(disk["drive_writes_per_day"].get<double>(), 1.953125);
}

TEST(TiersReportTest, TheTableHasALineForEachTier) {
  const std::vector<std::string> lines =
      absl::StrSplit(TiersText(Status()), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].substr(0, 42), "    0  cpu            3  1.0 KiB   4.0 KiB");
  std::vector<std::string> cells = absl::StrSplit(lines[3], ' ', absl::SkipEmpty());
  EXPECT_EQ(absl::StrJoin(cells, " "),
            "1 nvme 2 6.0 KiB 8.0 KiB 3.0 KiB 1.5 KiB/s 2.0 KiB - 75 % 500.0 ms 1.95");
}

}  // namespace
}  // namespace kaon::admin_cli
