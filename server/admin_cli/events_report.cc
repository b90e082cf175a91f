#include "server/admin_cli/events_report.h"

#include "absl/strings/str_cat.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {

using Events = google::protobuf::RepeatedPtrField<v1::EventCount>;

namespace {

void AddRows(const std::string& server, const Events& events, Table& table) {
  for (const v1::EventCount& event : events) {
    table.AddRow({server, event.name(), absl::StrCat(event.count())});
  }
}

}  // namespace

nlohmann::ordered_json EventsJson(const Events& events) {
  auto json = nlohmann::ordered_json::object();
  for (const v1::EventCount& event : events) json[event.name()] = event.count();
  return json;
}

std::string EventsText(const v1::GetStatusResponse& status) {
  Table table({{"SERVER"}, {"EVENT"}, {"COUNT", Align::kRight}});
  AddRows("coordinator", status.events(), table);
  for (const v1::ShardStatus& shard : status.shards()) {
    const std::string name = absl::StrCat("shard ", shard.shard());
    if (!shard.connected()) table.AddRow({name, "unknown", "-"});
    AddRows(name, shard.description().events(), table);
  }
  return table.ToString();
}

}  // namespace kaon::admin_cli
