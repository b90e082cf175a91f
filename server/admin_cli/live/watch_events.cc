#include "server/admin_cli/live/watch_events.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/status_macros.h"
#include "server/admin_cli/live/keep_asking.h"
#include "server/admin_cli/report.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

namespace {

constexpr char kCoordinator[] = "coordinator";

std::string NameOf(const v1::ShardStatus& shard) { return absl::StrCat("shard ", shard.shard()); }

}  // namespace

std::string EventLines::NewOf(const std::string& time, const std::string& server,
                              const Events& events) {
  const auto [at, is_first] = counts_.try_emplace(server);
  std::string lines;
  for (const v1::EventCount& event : events) {
    uint64_t& before = at->second[event.name()];
    const uint64_t count = event.count();
    const uint64_t num_new = count >= before ? count - before : count;
    before = count;
    if (is_first || num_new == 0) continue;
    if (json_) {
      const Json line = {{"time", time},
                         {"server", server},
                         {"event", event.name()},
                         {"new", num_new},
                         {"count", count}};
      absl::StrAppend(&lines, line.dump(), "\n");
    } else {
      absl::StrAppendFormat(&lines, "%s  %-12s %s +%d (%d)\n", time, server, event.name(), num_new,
                            count);
    }
  }
  return lines;
}

void EventLines::NoteCoordinator(const v1::GetStatusResponse& status) {
  const auto known = counts_.find(kCoordinator);
  if (known != counts_.end() && status.started_unix_millis() != started_) {
    // One that has started since has counted everything since.
    known->second.clear();
    if (status.started_unix_millis() <= answered_) counts_.erase(known);
  }
  started_ = status.started_unix_millis();
  answered_ = status.time_unix_millis();
}

std::string EventLines::New(const v1::GetStatusResponse& status) {
  NoteCoordinator(status);
  const std::string time = monitor::TimeText(status.time_unix_millis());
  std::string lines = NewOf(time, kCoordinator, status.events());
  for (const v1::ShardStatus& shard : status.shards()) {
    if (!shard.connected()) continue;
    absl::StrAppend(&lines, NewOf(time, NameOf(shard), shard.description().events()));
  }
  return lines;
}

std::string EventLines::Changes(const v1::GetStatusResponse& status) {
  std::string lines;
  for (const v1::ShardStatus& shard : status.shards()) {
    bool& is_away = is_away_[NameOf(shard)];
    if (is_away == !shard.connected()) continue;
    is_away = !shard.connected();
    absl::StrAppend(
        &lines, "kaonctl: ", NameOf(shard), " at ", shard.address(),
        is_away ? absl::StrCat(" does not answer: ", shard.problem()) : " answers again", "\n");
  }
  return lines;
}

absl::Status WatchEvents(const std::function<absl::StatusOr<v1::GetStatusResponse>()>& read,
                         const std::function<bool()>& pause, bool json, std::ostream& out,
                         std::ostream& errors) {
  EventLines lines(json);
  const auto ask = [&]() -> absl::Status {
    KAON_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, read());
    errors << lines.Changes(status) << std::flush;
    out << lines.New(status) << std::flush;
    return absl::OkStatus();
  };
  return KeepAsking(ask, pause, out, errors);
}

}  // namespace kaon::admin_cli
