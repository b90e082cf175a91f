#include "server/admin_cli/report.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/admin_cli/events_report.h"
#include "server/admin_cli/table.h"
#include "server/admin_cli/worker_report.h"
#include "server/config/durability.h"

namespace kaon::admin_cli {

std::string Hex(uint64_t digest) { return absl::StrFormat("%016x", digest); }

namespace {

constexpr Align kRight = Align::kRight;

// Converts RULE_ADAMW to adamw: the spelling of the job definition, without the enum's prefix.
std::string Word(const std::string& name, absl::string_view prefix) {
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}
std::string Word(v1::Rule rule) { return Word(v1::Rule_Name(rule), "RULE_"); }
std::string Word(v1::DType dtype) { return Word(v1::DType_Name(dtype), "DTYPE_"); }
std::string Word(v1::Outcome outcome) { return Word(v1::Outcome_Name(outcome), "OUTCOME_"); }
std::string Word(v1::StepKind kind) { return Word(v1::StepKind_Name(kind), "STEP_KIND_"); }
std::string Word(v1::ClipPolicy policy) {
  return policy == v1::CLIP_POLICY_UNSPECIFIED ? "by rule"
                                               : Word(v1::ClipPolicy_Name(policy), "CLIP_POLICY_");
}
std::string DurabilityOf(const v1::ShardState& state) {
  return config::DurabilityText(state.durability(), state.interval_steps());
}

std::string Number(double value) { return absl::StrFormat("%.6g", value); }

std::string YesNo(bool value) { return value ? "yes" : "no"; }

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

Json BallotJson(const v1::Ballot& ballot) {
  return {{"counter", ballot.counter()},
          {"incarnation", Hex(ballot.incarnation_high()) + Hex(ballot.incarnation_low())}};
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
  row["events"] = EventsJson(facts.events());
  return row;
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

std::string ShardsText(const v1::GetStatusResponse& status) {
  Table table({{"SHARD", kRight},
               {"ADDRESS"},
               {"CONNECTED"},
               {"POSITION", kRight},
               {"STEP", kRight},
               {"APPLIED", kRight},
               {"SKIPPED", kRight},
               {"PARAMETERS", kRight},
               {"USED BYTES", kRight},
               {"CAPACITY", kRight},
               {"DURABILITY"},
               {"DISK BYTES", kRight},
               {"SNAPSHOT", kRight},
               {"BACKEND"},
               {"PROBLEM"}});
  for (const v1::ShardStatus& shard : status.shards()) {
    const v1::DescribeShardResponse& facts = shard.description();
    table.AddRow({absl::StrCat(shard.shard()), shard.address(), YesNo(shard.connected()),
                  absl::StrCat(facts.state().applied_position()),
                  absl::StrCat(facts.state().applied_step()), absl::StrCat(facts.applied_steps()),
                  absl::StrCat(facts.skipped_steps()), absl::StrCat(facts.parameters_size()),
                  absl::StrCat(facts.used_bytes()), absl::StrCat(facts.capacity_bytes()),
                  DurabilityOf(facts.state()), absl::StrCat(facts.journal().bytes()),
                  SnapshotText(facts), OrDash(facts.backend()), OrDash(ProblemOf(shard))});
  }
  return table.ToString();
}

// Returns the train or load step of a record; null for a control entry.
const v1::StepBody* StepOf(const v1::StepRecord& record) {
  return record.plan().has_step() ? &record.plan().step() : nullptr;
}

std::string KindOf(const v1::StepRecord& record) {
  const v1::StepBody* step = StepOf(record);
  if (step != nullptr) return Word(step->kind());
  if (record.plan().has_restore()) return "restore";
  if (record.plan().has_rollback()) return "rollback";
  return record.plan().has_group_change() ? "group_change" : "registration";
}

// Returns why a step was skipped, what a change of groups set, or which state was restored and why.
std::string ReasonText(const v1::StepRecord& record) {
  if (record.plan().has_restore()) {
    return absl::StrCat("step ", record.plan().restore().step(), " of checkpoint ",
                        record.plan().restore().checkpoint());
  }
  if (record.plan().has_rollback()) return record.plan().rollback().reason();
  if (!record.plan().has_group_change()) return OrDash(record.decision().reason());
  return absl::StrJoin(record.plan().group_change().settings(), ", ",
                       [](std::string* out, const v1::GroupSetting& setting) {
                         absl::StrAppend(out, setting.group().empty() ? "job" : setting.group(),
                                         " ", setting.field(), "=", setting.value());
                       });
}

// A norm that was not computed is null, and "-" in a table: 0 is the norm of gradients that are 0.
Json NormJson(bool is_taken, double norm) { return is_taken ? Json(norm) : Json(nullptr); }

std::string NormText(bool is_taken, double norm) { return is_taken ? Number(norm) : "-"; }

Json StepJson(const v1::StepRecord& record) {
  const v1::StepDecision& decision = record.decision();
  Json row = {{"position", record.plan().position()}, {"kind", KindOf(record)}};
  if (record.plan().has_group_change()) {
    row["settings"] = Json::array();
    for (const v1::GroupSetting& setting : record.plan().group_change().settings()) {
      row["settings"].push_back(
          {{"group", setting.group()}, {"field", setting.field()}, {"value", setting.value()}});
    }
  }
  if (record.plan().has_restore()) {
    row["checkpoint"] = record.plan().restore().checkpoint();
    row["restored_step"] = record.plan().restore().step();
  }
  if (record.plan().has_rollback()) {
    row["rolled_back_to_position"] = record.plan().rollback().target().position();
    row["rolled_back_to_step"] = record.plan().rollback().target().step();
  }
  if (const v1::StepBody* step = StepOf(record)) row["step"] = step->step();
  row["outcome"] = Word(decision.outcome());
  row["reason"] =
      record.plan().has_rollback() ? record.plan().rollback().reason() : decision.reason();
  if (decision.has_loss()) row["loss"] = decision.loss();
  row["grad_norm"] = NormJson(decision.has_grad_norm(), decision.grad_norm());
  row["live_norm"] = NormJson(decision.has_live_norm(), decision.live_norm());
  row["norms"] = Json::array();
  for (const v1::GroupNorm& norm : decision.norms()) {
    row["norms"].push_back({{"group", norm.group()},
                            {"norm", NormJson(norm.has_norm(), norm.norm())},
                            {"exempt", norm.exempt()},
                            {"clip_factor", norm.clip_factor()}});
  }
  row["norm_groups"] = Json::array();
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    row["norm_groups"].push_back({{"norm_group", norm.norm_group()},
                                  {"norm", NormJson(norm.has_norm(), norm.norm())},
                                  {"live_norm", NormJson(norm.has_live_norm(), norm.live_norm())},
                                  {"clip_factor", norm.clip_factor()}});
  }
  row["applied_updates"] = decision.applied_updates();
  row["clip_reductions_total"] = decision.clip_reductions_total();
  row["state_digest"] = Hex(decision.state_digest());
  if (const v1::StepBody* step = StepOf(record)) {
    row["loss_scale"] = step->loss_scale();
    row["rates"] = Json::object();
    for (const v1::GroupRate& rate : step->rates())
      row["rates"][rate.group()] = rate.learning_rate();
    row["members"] = Json::array();
    for (const v1::Member& member : step->members()) {
      row["members"].push_back({{"rank", member.rank()},
                                {"attempt", AttemptText(member.attempt())},
                                {"token_weight", member.token_weight()},
                                {"micro_batches", member.micro_batches()}});
    }
  }
  row["ballot"] = BallotJson(record.plan().ballot());
  row["round"] = record.plan().round();
  row["timeline"] = record.plan().timeline();
  return row;
}

}  // namespace

Json StatusJson(const v1::GetStatusResponse& status) {
  Json json = {{"holder", status.holder()},
               {"holder_address", status.holder_address()},
               {"ballot", BallotJson(status.ballot())},
               {"job", status.job()},
               {"phase", status.phase()},
               {"applied_step", status.applied_step()}};
  const std::optional<uint64_t> digest = WeightsDigest(status);
  json["weights_digest"] = digest.has_value() ? Json(Hex(*digest)) : Json(nullptr);
  json["shards"] = Json::array();
  for (const v1::ShardStatus& shard : status.shards()) json["shards"].push_back(ShardJson(shard));
  json["workers"] = WorkersJson(status);
  json["events"] = EventsJson(status.events());
  return json;
}

std::string StatusText(const v1::GetStatusResponse& status) {
  const std::optional<uint64_t> digest = WeightsDigest(status);
  std::string text = absl::StrCat(
      "job             ", OrDash(status.job()), "\nphase           ", OrDash(status.phase()),
      "\napplied step    ", status.applied_step(), "\nholder          ",
      status.holder() ? "this coordinator" : OrDash(status.holder_address()), " (ballot ",
      status.ballot().counter(), ")\nweights digest  ", digest.has_value() ? Hex(*digest) : "-",
      "\n\n", ShardsText(status));
  absl::StrAppend(&text, "\n", WorkersText(status));
  return text;
}

Json JobJson(const v1::JobDescription& job) {
  const v1::JobDefinition& definition = job.definition();
  Json json = {{"job", definition.name()},
               {"timeline", job.timeline()},
               {"applied_step", job.applied_step()},
               {"weights_loaded", job.weights_loaded()},
               {"stopped_reason", job.stopped_reason()},
               {"world_size", definition.world_size()},
               {"num_parameters", definition.parameters_size()},
               {"max_grad_norm", definition.max_grad_norm()},
               {"matrix_group", definition.matrix_group()},
               {"scalar_group", definition.scalar_group()}};
  json["groups"] = Json::array();
  for (const v1::ParameterGroup& group : definition.groups()) {
    json["groups"].push_back({{"name", group.name()},
                              {"rule", Word(group.rule())},
                              {"lr", group.lr()},
                              {"weight_decay", group.weight_decay()},
                              {"clip", Word(group.clip_policy())}});
  }
  json["shards"] = Json::array();
  for (const std::string& address : job.shard_addresses()) json["shards"].push_back(address);
  return json;
}

std::string JobText(const v1::JobDescription& job) {
  const v1::JobDefinition& definition = job.definition();
  std::string text = absl::StrCat(
      "job            ", definition.name(), "\nworkers        ", definition.world_size(),
      "\nparameters     ", definition.parameters_size(), "\ntimeline       ", job.timeline(),
      "\napplied step   ", job.applied_step(), "\nweights        ",
      job.weights_loaded() ? "loaded" : "not loaded", "\nmax grad norm  ",
      definition.max_grad_norm() > 0 ? Number(definition.max_grad_norm()) : "off",
      "\nstopped        ", OrDash(job.stopped_reason()), "\nshards         ",
      absl::StrJoin(job.shard_addresses(), ", "), "\n\n");
  Table groups(
      {{"GROUP"}, {"RULE"}, {"LR", kRight}, {"WEIGHT DECAY", kRight}, {"CLIP"}, {"TAKES"}});
  for (const v1::ParameterGroup& group : definition.groups()) {
    const std::string takes = group.name() == definition.matrix_group()   ? "matrices"
                              : group.name() == definition.scalar_group() ? "everything else"
                                                                          : "by name";
    groups.AddRow({group.name(), Word(group.rule()), Number(group.lr()),
                   Number(group.weight_decay()), Word(group.clip_policy()), takes});
  }
  return text + groups.ToString();
}

namespace {

// Returns the spelling of the routing rules and layouts of a job.
std::string LayoutWord(const v1::MatrixLayout& layout) {
  return Word(v1::MatrixLayoutKind_Name(layout.kind()), "MATRIX_LAYOUT_KIND_");
}

Json BlocksJson(const v1::ParameterRow& row) {
  Json blocks = Json::array();
  for (const v1::MatrixBlocks& block : row.blocks()) {
    blocks.push_back({{"rows", block.rows()},
                      {"cols", block.cols()},
                      {"count", block.count()},
                      {"scale", block.scale()}});
  }
  return blocks;
}

// Returns text such as "8 of 64x64 * 1.6, 1 of 32x64 * 1".
std::string BlocksText(const v1::ParameterRow& row) {
  return absl::StrJoin(row.blocks(), ", ", [](std::string* out, const v1::MatrixBlocks& block) {
    absl::StrAppend(out, block.count(), " of ", block.rows(), "x", block.cols(), " * ",
                    Number(block.scale()));
  });
}

// Returns the norm group, such as "main", and whether the parameter is exempt or not counted.
std::string NormText(const v1::ParameterRow& row) {
  if (row.spec().frozen()) return "-";
  return absl::StrCat(row.placement().norm_group(), row.clip_exempt() ? ", exempt" : "",
                      row.placement().counted() ? "" : ", not counted");
}

std::string MultipliersText(const v1::ParameterRow& row) {
  if (row.spec().frozen()) return "-";
  return absl::StrCat(Number(row.placement().lr_multiplier()), " ",
                      Number(row.placement().weight_decay_multiplier()));
}

}  // namespace

Json ParametersJson(const std::vector<v1::ParameterRow>& parameters) {
  Json rows = Json::array();
  for (const v1::ParameterRow& row : parameters) {
    rows.push_back(
        {{"parameter_id", row.placement().parameter_id()},
         {"name", row.spec().name()},
         {"route", row.spec().frozen() ? "frozen" : Word(row.rule())},
         {"reason", row.placement().route_reason()},
         {"group", row.placement().group()},
         {"shard", row.placement().shard()},
         {"shape",
          Json(std::vector<uint64_t>(row.spec().shape().begin(), row.spec().shape().end()))},
         {"dtype", Word(row.spec().dtype())},
         {"clip_exempt", row.clip_exempt()},
         {"norm_group", row.placement().norm_group()},
         {"counted", row.placement().counted()},
         {"lr_multiplier", row.placement().lr_multiplier()},
         {"weight_decay_multiplier", row.placement().weight_decay_multiplier()},
         {"layout", row.placement().has_layout() ? Json(LayoutWord(row.placement().layout()))
                                                 : Json(nullptr)},
         {"blocks", BlocksJson(row)},
         {"state_bytes", row.state().state_bytes()},
         {"updates_applied", row.state().updates_applied()},
         {"newton_schulz_updates", row.state().newton_schulz_updates()}});
  }
  return {{"parameters", rows}};
}

std::string ParametersText(const std::vector<v1::ParameterRow>& parameters) {
  Table table({{"ID", kRight},
               {"NAME"},
               {"SHAPE"},
               {"DTYPE"},
               {"ROUTE"},
               {"GROUP"},
               {"SHARD", kRight},
               {"STATE BYTES", kRight},
               {"UPDATES", kRight},
               {"NEWTON-SCHULZ", kRight},
               {"NORM GROUP"},
               {"LR x, DECAY x"},
               {"LAYOUT"},
               {"MATRICES * SCALE"},
               {"REASON"}});
  for (const v1::ParameterRow& row : parameters) {
    table.AddRow(
        {absl::StrCat(row.placement().parameter_id()), row.spec().name(),
         absl::StrJoin(row.spec().shape(), "x"), Word(row.spec().dtype()),
         row.spec().frozen() ? "frozen" : Word(row.rule()), OrDash(row.placement().group()),
         absl::StrCat(row.placement().shard()), absl::StrCat(row.state().state_bytes()),
         absl::StrCat(row.state().updates_applied()),
         absl::StrCat(row.state().newton_schulz_updates()), NormText(row), MultipliersText(row),
         row.placement().has_layout() ? LayoutWord(row.placement().layout()) : "-",
         OrDash(BlocksText(row)), OrDash(row.placement().route_reason())});
  }
  return table.ToString();
}

Json StepsJson(const v1::StepHistoryResponse& history) {
  Json rows = Json::array();
  for (const v1::StepRecord& record : history.records()) rows.push_back(StepJson(record));
  return {{"steps", rows}};
}

std::string StepsText(const v1::StepHistoryResponse& history) {
  Table table({{"POSITION", kRight},
               {"KIND"},
               {"STEP", kRight},
               {"DECISION"},
               {"LOSS", kRight},
               {"GRAD NORM", kRight},
               {"LIVE NORM", kRight},
               {"NORM x CLIP FACTOR BY GROUP"},
               {"REASON"}});
  for (const v1::StepRecord& record : history.records()) {
    const v1::StepDecision& decision = record.decision();
    const v1::StepBody* step = StepOf(record);
    std::string norms;
    for (const v1::GroupNorm& norm : decision.norms()) {
      absl::StrAppend(&norms, norms.empty() ? "" : ", ", norm.group(), " ",
                      NormText(norm.has_norm(), norm.norm()), " x ",
                      norm.exempt() ? "exempt" : Number(norm.clip_factor()));
    }
    table.AddRow({absl::StrCat(record.plan().position()), KindOf(record),
                  step == nullptr ? "-" : absl::StrCat(step->step()), Word(decision.outcome()),
                  decision.has_loss() ? Number(decision.loss()) : "-",
                  NormText(decision.has_grad_norm(), decision.grad_norm()),
                  NormText(decision.has_live_norm(), decision.live_norm()), OrDash(norms),
                  ReasonText(record)});
  }
  return table.ToString();
}

Json HealthJson(const std::vector<HealthRow>& rows) {
  Json servers = Json::array();
  bool healthy = true;
  for (const HealthRow& row : rows) {
    healthy = healthy && row.serving;
    servers.push_back({{"role", row.role},
                       {"address", row.address},
                       {"serving", row.serving},
                       {"status", row.status},
                       {"reason", row.reason}});
  }
  return {{"healthy", healthy}, {"servers", servers}};
}

std::string HealthText(const std::vector<HealthRow>& rows) {
  Table table({{"ROLE"}, {"ADDRESS"}, {"STATUS"}, {"REASON"}});
  for (const HealthRow& row : rows) table.AddRow({row.role, row.address, row.status, row.reason});
  return table.ToString();
}

}  // namespace kaon::admin_cli
