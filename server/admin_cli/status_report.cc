#include "server/admin_cli/status_report.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "server/admin_cli/events_report.h"
#include "server/admin_cli/table.h"
#include "server/admin_cli/worker_report.h"
#include "server/config/durability.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;
using monitor::Seconds;
using monitor::TimeText;

namespace {

constexpr Align kRight = Align::kRight;

std::string DurabilityOf(const v1::ShardState& state) {
  return config::DurabilityText(state.durability(), state.interval_steps());
}

// Returns whether this coordinator can tell that no job runs. A shard that is away may know one.
bool IsJobKnown(const v1::GetStatusResponse& status) {
  return !status.job().empty() || AllShardsSeen(status).ok();
}

// Returns the digest of the whole job, which is the sum of the shards' digests. Absent if a shard
// did not describe itself.
std::optional<uint64_t> WeightsDigest(const v1::GetStatusResponse& status) {
  uint64_t digest = 0;
  for (const v1::ShardStatus& shard : status.shards()) {
    if (!shard.connected()) return std::nullopt;
    digest += shard.description().weights_digest();
  }
  return digest;
}

// For durability interval(K): steps that the job would lose if the shard restarted now and all
// shards had this snapshot.
uint64_t StepsBehindSnapshot(const v1::DescribeShardResponse& facts) {
  const uint64_t step = facts.snapshot().step();
  return facts.state().applied_step() - std::min(step, facts.state().applied_step());
}

Json ShardJson(const v1::ShardStatus& shard) {
  Json row = {{"shard", shard.shard()},
              {"address", shard.address()},
              {"connected", shard.connected()},
              {"problem", shard.problem()}};
  if (!shard.has_description()) return row;
  const v1::DescribeShardResponse& facts = shard.description();
  row["applied_position"] = facts.state().applied_position();
  row["applied_step"] = facts.state().applied_step();
  row["applied_steps"] = facts.applied_steps();
  row["skipped_steps"] = facts.skipped_steps();
  row["durability"] = DurabilityOf(facts.state());
  if (facts.state().interval_steps() > 0) {
    row["rollback_needed"] = facts.state().rollback_needed();
    row["steps_behind_snapshot"] = StepsBehindSnapshot(facts);
  }
  row["data_loss"] = facts.state().data_loss();
  row["journal_bytes"] = facts.journal().bytes();
  row["read_only_reason"] = facts.journal().read_only_reason();
  row["recovered_entries"] = facts.journal().recovered_entries();
  row["recovery_seconds"] = facts.journal().recovery_seconds();
  row["torn_tail"] = facts.journal().torn_tail();
  row["snapshot_position"] = facts.snapshot().position();
  row["snapshot_step"] = facts.snapshot().step();
  row["snapshot_bytes"] = facts.snapshot().bytes();
  row["snapshot_seconds"] = facts.snapshot().seconds();
  row["snapshot_in_progress"] = facts.snapshot().in_progress();
  row["snapshot_problem"] = facts.snapshot().problem();
  row["awaited_ranks"] = Json::array();
  for (const uint32_t rank : facts.awaited_ranks()) row["awaited_ranks"].push_back(rank);
  row["parameters"] = facts.parameters_size();
  row["capacity_bytes"] = facts.capacity_bytes();
  row["used_bytes"] = facts.used_bytes();
  row["staging_bytes"] = facts.staging_bytes();
  row["backend"] = facts.backend();
  row["build"] = facts.build();
  row["device_class"] = facts.device_class();
  row["weights_digest"] = Hex(facts.weights_digest());
  row["state_digest"] = Hex(facts.state_digest());
  row["nccl"] = Json::array();
  for (const v1::NcclPair& pair : facts.nccl_pairs()) {
    row["nccl"].push_back({{"rank", pair.rank()},
                           {"session", pair.session()},
                           {"state", pair.state()},
                           {"sessions", pair.sessions()},
                           {"transfers", pair.transfers()},
                           {"bytes", pair.bytes()},
                           {"aborts", pair.aborts()}});
  }
  row["events"] = EventsJson(facts.events());
  return row;
}

// Returns a table of the workers that send gradients over NCCL; "" if none does.
std::string NcclText(const v1::GetStatusResponse& status) {
  Table table({{"NCCL SHARD", kRight},
               {"RANK", kRight},
               {"STATE"},
               {"SESSION", kRight},
               {"TRANSFERS", kRight},
               {"BYTES", kRight},
               {"ABORTS", kRight}});
  bool any = false;
  for (const v1::ShardStatus& shard : status.shards()) {
    for (const v1::NcclPair& pair : shard.description().nccl_pairs()) {
      any = true;
      table.AddRow({absl::StrCat(shard.shard()), absl::StrCat(pair.rank()), pair.state(),
                    absl::StrCat(pair.session()), absl::StrCat(pair.transfers()),
                    Bytes(pair.bytes()), absl::StrCat(pair.aborts())});
    }
  }
  return any ? absl::StrCat("\n", table.ToString()) : "";
}

// Returns the most serious problem of a shard.
std::string ProblemOf(const v1::ShardStatus& shard) {
  if (!shard.problem().empty()) return shard.problem();
  const v1::DescribeShardResponse& facts = shard.description();
  if (!facts.state().data_loss().empty()) return facts.state().data_loss();
  if (facts.state().rollback_needed()) return "restarted: the job must be rolled back";
  if (!facts.journal().read_only_reason().empty()) {
    return absl::StrCat("read-only: ", facts.journal().read_only_reason());
  }
  if (facts.snapshot().problem().empty()) return "";
  return absl::StrCat("snapshot: ", facts.snapshot().problem());
}

// Returns the step that a restart begins from. Adds how many steps back that is, if a restart loses
// them.
std::string SnapshotText(const v1::DescribeShardResponse& facts) {
  if (facts.snapshot().position() == 0) return "-";
  const bool loses = facts.state().interval_steps() > 0;
  return absl::StrCat("step ", facts.snapshot().step(),
                      loses ? absl::StrCat(" (-", StepsBehindSnapshot(facts), ")") : "");
}

struct ShardCell {
  Column column;
  bool is_wide;
  std::string (*of_facts)(const v1::DescribeShardResponse& facts);
};

std::string Text(uint64_t value) { return absl::StrCat(value); }

using Facts = v1::DescribeShardResponse;

// Columns between CONNECTED and PROBLEM. A shard that did not answer has "-" in each.
const std::vector<ShardCell>& ShardCells() {
  static const std::vector<ShardCell> cells = {
      {{"POSITION", kRight},
       false,
       [](const Facts& facts) { return Text(facts.state().applied_position()); }},
      {{"STEP", kRight},
       false,
       [](const Facts& facts) { return Text(facts.state().applied_step()); }},
      {{"APPLIED SINCE START", kRight},
       true,
       [](const Facts& facts) { return Text(facts.applied_steps()); }},
      {{"SKIPPED SINCE START", kRight},
       true,
       [](const Facts& facts) { return Text(facts.skipped_steps()); }},
      {{"PARAMETERS", kRight},
       false,
       [](const Facts& facts) { return Text(facts.parameters_size()); }},
      {{"USED", kRight}, false, [](const Facts& facts) { return Bytes(facts.used_bytes()); }},
      {{"CAPACITY", kRight},
       false,
       [](const Facts& facts) { return Bytes(facts.capacity_bytes()); }},
      {{"STAGING", kRight}, true, [](const Facts& facts) { return Bytes(facts.staging_bytes()); }},
      {{"DURABILITY"}, false, [](const Facts& facts) { return DurabilityOf(facts.state()); }},
      {{"DISK", kRight}, false, [](const Facts& facts) { return Bytes(facts.journal().bytes()); }},
      {{"SNAPSHOT", kRight}, false, SnapshotText},
      {{"RECOVERY", kRight},
       true,
       [](const Facts& facts) { return Seconds(facts.journal().recovery_seconds()); }},
      {{"BACKEND"}, false, [](const Facts& facts) { return OrDash(facts.backend()); }},
      {{"BUILD"}, true, [](const Facts& facts) { return OrDash(facts.build()); }},
      {{"DEVICE"}, true, [](const Facts& facts) { return OrDash(facts.device_class()); }},
  };
  return cells;
}

std::string ShardsText(const v1::GetStatusResponse& status, bool wide) {
  std::vector<Column> columns = {{"SHARD", kRight}, {"ADDRESS"}, {"CONNECTED"}};
  for (const ShardCell& cell : ShardCells()) {
    if (wide || !cell.is_wide) columns.push_back(cell.column);
  }
  columns.push_back({"PROBLEM"});
  Table table(std::move(columns));
  for (const v1::ShardStatus& shard : status.shards()) {
    std::vector<std::string> row = {absl::StrCat(shard.shard()), shard.address(),
                                    shard.connected() ? "yes" : "no"};
    for (const ShardCell& cell : ShardCells()) {
      if (!wide && cell.is_wide) continue;
      row.push_back(shard.has_description() ? cell.of_facts(shard.description()) : "-");
    }
    row.push_back(OrDash(ProblemOf(shard)));
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string StatusTextOf(const v1::GetStatusResponse& status, bool wide) {
  const std::optional<uint64_t> digest = WeightsDigest(status);
  const bool known = IsJobKnown(status);
  std::string text =
      absl::StrCat("job             ", known ? OrDash(status.job()) : "unknown",
                   "\nphase           ", OrDash(status.phase()), "\napplied step    ",
                   known ? absl::StrCat(status.applied_step()) : "unknown", "\nholder          ",
                   status.holder() ? "this coordinator" : OrDash(status.holder_address()),
                   " (ballot ", status.ballot().counter(), ")\nstarted         ",
                   OrDash(TimeText(status.started_unix_millis())), "\nweights digest  ",
                   digest.has_value() ? Hex(*digest) : "-", "\n\n", ShardsText(status, wide));
  text += NcclText(status);
  if (!status.holder()) {
    return absl::StrCat(text, "\nworkers         unknown: only the holder knows them\n");
  }
  absl::StrAppend(&text, "\n", WorkersText(status));
  return text;
}

}  // namespace

absl::Status AllShardsSeen(const v1::GetStatusResponse& status) {
  std::string unseen;
  for (const v1::ShardStatus& shard : status.shards()) {
    if (shard.connected()) continue;
    absl::StrAppend(&unseen, unseen.empty() ? "" : "; ", "shard ", shard.shard(), " at ",
                    shard.address(), ": ", shard.problem());
  }
  if (unseen.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("unknown, because they did not answer: ", unseen));
}

Json StatusJson(const v1::GetStatusResponse& status) {
  const bool known = IsJobKnown(status);
  Json json = {{"holder", status.holder()},
               {"holder_address", status.holder_address()},
               {"ballot", BallotJson(status.ballot())},
               {"job", known ? Json(status.job()) : Json()},
               {"phase", status.phase()},
               {"applied_step", known ? Json(status.applied_step()) : Json()}};
  const std::optional<uint64_t> digest = WeightsDigest(status);
  json["weights_digest"] = digest.has_value() ? Json(Hex(*digest)) : Json(nullptr);
  json["shards"] = Json::array();
  for (const v1::ShardStatus& shard : status.shards()) json["shards"].push_back(ShardJson(shard));
  json["time"] = TimeJson(status.time_unix_millis());
  json["started"] = TimeJson(status.started_unix_millis());
  json["workers"] = status.holder() ? WorkersJson(status) : Json();
  json["events"] = EventsJson(status.events());
  return json;
}

std::string StatusText(const v1::GetStatusResponse& status) { return StatusTextOf(status, false); }

Json OneShardJson(const v1::ShardStatus& shard) {
  Json json = ShardJson(shard);
  json["job"] = shard.description().state().registration().definition().name();
  return json;
}

std::string OneShardText(const v1::ShardStatus& shard) {
  v1::GetStatusResponse status;
  *status.add_shards() = shard;
  const std::string& job = shard.description().state().registration().definition().name();
  return absl::StrCat("job  ", OrDash(job), "\n\n", ShardsText(status, true));
}

Json WorkerListJson(const v1::GetStatusResponse& status) {
  return {{"job", status.job()}, {"workers", WorkersJson(status)}};
}

std::string WorkerListText(const v1::GetStatusResponse& status) { return WorkersText(status); }

std::string StatusWideText(const v1::GetStatusResponse& status) {
  return StatusTextOf(status, true);
}

}  // namespace kaon::admin_cli
