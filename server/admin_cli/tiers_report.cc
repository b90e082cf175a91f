#include "server/admin_cli/tiers_report.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin_cli/table.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;
using monitor::Seconds;

namespace {

constexpr double kSecondsOfDay = 86400;

// Returns null without anything to divide by.
Json Ratio(double value, double by) { return by > 0 ? Json(value / by) : Json(); }

Json TierJson(uint32_t shard, const v1::TierStatus& tier) {
  Json row = {{"shard", shard},
              {"tier", tier.name()},
              {"parameters", tier.parameters()},
              {"used_bytes", tier.used_bytes()},
              {"capacity_bytes", tier.capacity_bytes()}};
  if (tier.path().empty()) return row;
  const auto reads = static_cast<double>(tier.read_bytes());
  const auto writes = static_cast<double>(tier.written_bytes());
  row["path"] = tier.path();
  row["staging_bytes"] = tier.staging_bytes();
  row["read_bytes"] = tier.read_bytes();
  row["written_bytes"] = tier.written_bytes();
  row["read_bytes_per_second"] = Ratio(reads, tier.read_seconds());
  row["write_bytes_per_second"] = Ratio(writes, tier.write_seconds());
  row["hits"] = tier.hits();
  row["misses"] = tier.misses();
  row["hit_rate"] =
      Ratio(static_cast<double>(tier.hits()), static_cast<double>(tier.hits() + tier.misses()));
  row["waited_seconds"] = tier.waited_seconds();
  row["seconds"] = tier.seconds();
  row["disk_bytes"] = tier.disk_bytes();
  row["drive_writes_per_day"] =
      Ratio(writes * kSecondsOfDay, tier.seconds() * static_cast<double>(tier.disk_bytes()));
  return row;
}

std::string Rate(const Json& row, const char* key) {
  const Json value = row.value(key, Json());
  if (value.is_null()) return "-";
  return absl::StrCat(Bytes(static_cast<uint64_t>(value.get<double>())), "/s");
}

std::string Number(const Json& row, const char* key) {
  const Json value = row.value(key, Json());
  return value.is_null() ? "-" : absl::StrFormat("%.2f", value.get<double>());
}

std::string Percent(const Json& row, const char* key) {
  const Json value = row.value(key, Json());
  return value.is_null() ? "-" : absl::StrFormat("%.0f %%", 100 * value.get<double>());
}

}  // namespace

Json TiersJson(const v1::GetStatusResponse& status) {
  Json rows = Json::array();
  for (const v1::ShardStatus& shard : status.shards()) {
    for (const v1::TierStatus& tier : shard.description().tiers()) {
      rows.push_back(TierJson(shard.shard(), tier));
    }
  }
  return {{"tiers", std::move(rows)}};
}

std::string TiersText(const v1::GetStatusResponse& status) {
  constexpr Align kRight = Align::kRight;
  Table table({{"SHARD", kRight},
               {"TIER"},
               {"PARAMETERS", kRight},
               {"USED", kRight},
               {"CAPACITY", kRight},
               {"READ", kRight},
               {"READ RATE", kRight},
               {"WRITTEN", kRight},
               {"WRITE RATE", kRight},
               {"HITS", kRight},
               {"WAITED", kRight},
               {"DRIVE WRITES/DAY", kRight}});
  const Json json = TiersJson(status);
  for (const Json& row : json["tiers"]) {
    const bool is_disk = row.contains("path");
    const auto bytes = [&row](const char* key) { return Bytes(row[key].get<uint64_t>()); };
    table.AddRow({row["shard"].dump(), row["tier"].get<std::string>(), row["parameters"].dump(),
                  bytes("used_bytes"), bytes("capacity_bytes"), is_disk ? bytes("read_bytes") : "-",
                  Rate(row, "read_bytes_per_second"), is_disk ? bytes("written_bytes") : "-",
                  Rate(row, "write_bytes_per_second"), Percent(row, "hit_rate"),
                  is_disk ? Seconds(row["waited_seconds"].get<double>()) : "-",
                  Number(row, "drive_writes_per_day")});
  }
  return table.ToString();
}

}  // namespace kaon::admin_cli
