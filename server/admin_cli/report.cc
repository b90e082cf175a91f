#include "server/admin_cli/report.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "job/definition.h"
#include "server/admin_cli/table.h"
#include "server/admin_cli/worker_report.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Bytes;
using monitor::TimeText;

Json TimeJson(int64_t unix_millis) {
  return unix_millis == 0 ? Json() : Json(TimeText(unix_millis));
}

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
std::string Number(double value) { return absl::StrFormat("%.6g", value); }

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

Json StepJson(const v1::StepRecord& record, int64_t decided_unix_millis) {
  const v1::StepDecision& decision = record.decision();
  Json row = {{"position", record.plan().position()},
              {"kind", KindOf(record)},
              {"decided", TimeJson(decided_unix_millis)}};
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

// Returns null if the shard did not tell the state.
Json OfState(const v1::ParameterRow& row, uint64_t (v1::ParameterState::*value)() const) {
  return row.has_state() ? Json((row.state().*value)()) : Json();
}

std::string Cell(const Json& value) { return value.is_null() ? "-" : value.dump(); }

}  // namespace

absl::Status AllParametersSeen(const std::vector<v1::ParameterRow>& parameters) {
  std::set<uint32_t> shards;
  size_t unseen = 0;
  for (const v1::ParameterRow& row : parameters) {
    if (row.has_state()) continue;
    ++unseen;
    shards.insert(row.placement().shard());
  }
  if (unseen == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("state of ", unseen, " of ", parameters.size(), " parameters is unknown: shard ",
                   absl::StrJoin(shards, ", "), " did not tell it; kaonctl status says why"));
}

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
         {"state_bytes", OfState(row, &v1::ParameterState::state_bytes)},
         {"tier", row.has_state() ? Json(row.state().tier()) : Json()},
         {"updates_applied", OfState(row, &v1::ParameterState::updates_applied)},
         {"newton_schulz_updates", OfState(row, &v1::ParameterState::newton_schulz_updates)}});
  }
  return {{"parameters", rows}};
}

namespace {

std::string BytesPerElement(const v1::ParameterRow& row) {
  const uint64_t elements = job::NumElements(row.spec());
  if (!row.has_state() || elements == 0) return "-";
  return absl::StrFormat("%.2f", static_cast<double>(row.state().state_bytes()) / elements);
}

std::string ParametersTable(const std::vector<v1::ParameterRow>& parameters, bool wide) {
  std::vector<Column> columns = {{"ID", kRight},      {"NAME"},
                                 {"SHAPE"},           {"DTYPE"},
                                 {"ROUTE"},           {"GROUP"},
                                 {"SHARD", kRight},   {"STATE", kRight},
                                 {"UPDATES", kRight}, {"NEWTON-SCHULZ", kRight},
                                 {"NORM GROUP"},      {"LR x, DECAY x"},
                                 {"LAYOUT"},          {"MATRICES * SCALE"},
                                 {"REASON"}};
  if (wide) columns.insert(columns.end(), {{"ELEMENTS", kRight}, {"STATE B / ELEMENT", kRight}});
  Table table(std::move(columns));
  for (const v1::ParameterRow& row : parameters) {
    std::vector<std::string> cells = {
        absl::StrCat(row.placement().parameter_id()),
        row.spec().name(),
        absl::StrJoin(row.spec().shape(), "x"),
        Word(row.spec().dtype()),
        row.spec().frozen() ? "frozen" : Word(row.rule()),
        OrDash(row.placement().group()),
        absl::StrCat(row.placement().shard()),
        row.has_state() ? Bytes(row.state().state_bytes()) : "-",
        Cell(OfState(row, &v1::ParameterState::updates_applied)),
        Cell(OfState(row, &v1::ParameterState::newton_schulz_updates)),
        NormText(row),
        MultipliersText(row),
        row.placement().has_layout() ? LayoutWord(row.placement().layout()) : "-",
        OrDash(BlocksText(row)),
        OrDash(row.placement().route_reason())};
    if (wide) {
      cells.insert(cells.end(), {absl::StrCat(job::NumElements(row.spec())), BytesPerElement(row)});
    }
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

}  // namespace

std::string ParametersText(const std::vector<v1::ParameterRow>& parameters) {
  return ParametersTable(parameters, false);
}

std::string ParametersWideText(const std::vector<v1::ParameterRow>& parameters) {
  return ParametersTable(parameters, true);
}

namespace {

// Returns 0 if the coordinator that was asked does not know it.
int64_t DecidedAt(const v1::StepHistoryResponse& history, const v1::StepRecord& record) {
  const auto found = history.decided_unix_millis().find(record.plan().position());
  return found == history.decided_unix_millis().end() ? 0 : found->second;
}

}  // namespace

Json StepsJson(const v1::StepHistoryResponse& history) {
  Json rows = Json::array();
  for (const v1::StepRecord& record : history.records()) {
    rows.push_back(StepJson(record, DecidedAt(history, record)));
  }
  return {{"steps", rows}};
}

namespace {

// Returns what workers and schedule gave to a step: learning rates, loss scale, ranks.
std::vector<std::string> WideCells(const v1::StepRecord& record) {
  const v1::StepBody* const step = StepOf(record);
  std::string rates = "-", ranks = "-";
  if (step != nullptr) {
    const auto rate = [](std::string* out, const v1::GroupRate& one) {
      absl::StrAppend(out, one.group(), " ", Number(one.learning_rate()));
    };
    const auto rank = [](std::string* out, const v1::Member& one) {
      absl::StrAppend(out, one.rank());
    };
    rates = OrDash(absl::StrJoin(step->rates(), ", ", rate));
    ranks = OrDash(absl::StrJoin(step->members(), ", ", rank));
  }
  return {rates, step == nullptr ? "-" : Number(step->loss_scale()), ranks,
          absl::StrCat(record.decision().applied_updates()), Hex(record.decision().state_digest())};
}

std::string StepsTable(const v1::StepHistoryResponse& history, bool wide) {
  std::vector<Column> columns = {{"POSITION", kRight},
                                 {"KIND"},
                                 {"STEP", kRight},
                                 {"DECIDED"},
                                 {"DECISION"},
                                 {"LOSS", kRight},
                                 {"GRAD NORM", kRight},
                                 {"LIVE NORM", kRight},
                                 {"NORM x CLIP FACTOR BY GROUP"},
                                 {"REASON"}};
  if (wide) {
    columns.insert(
        columns.end(),
        {{"RATES"}, {"LOSS SCALE", kRight}, {"RANKS"}, {"APPLIED", kRight}, {"STATE DIGEST"}});
  }
  Table table(std::move(columns));
  for (const v1::StepRecord& record : history.records()) {
    const v1::StepDecision& decision = record.decision();
    const v1::StepBody* step = StepOf(record);
    std::string norms;
    for (const v1::GroupNorm& norm : decision.norms()) {
      absl::StrAppend(&norms, norms.empty() ? "" : ", ", norm.group(), " ",
                      NormText(norm.has_norm(), norm.norm()), " x ",
                      norm.exempt() ? "exempt" : Number(norm.clip_factor()));
    }
    std::vector<std::string> cells = {absl::StrCat(record.plan().position()),
                                      KindOf(record),
                                      step == nullptr ? "-" : absl::StrCat(step->step()),
                                      OrDash(TimeText(DecidedAt(history, record))),
                                      Word(decision.outcome()),
                                      decision.has_loss() ? Number(decision.loss()) : "-",
                                      NormText(decision.has_grad_norm(), decision.grad_norm()),
                                      NormText(decision.has_live_norm(), decision.live_norm()),
                                      OrDash(norms),
                                      ReasonText(record)};
    if (wide) {
      for (std::string& cell : WideCells(record)) cells.push_back(std::move(cell));
    }
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

}  // namespace

std::string StepsText(const v1::StepHistoryResponse& history) { return StepsTable(history, false); }

std::string StepsWideText(const v1::StepHistoryResponse& history) {
  return StepsTable(history, true);
}

absl::Status AllServe(const HealthReport& health) {
  if (!health.shards.ok()) return health.shards;
  std::vector<std::string> away;
  for (const HealthRow& row : health.rows) {
    if (!row.serving) away.push_back(absl::StrCat(row.role, " ", row.address));
  }
  if (away.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(away.size(), " of ", health.rows.size(),
                                             " servers do not serve: ", absl::StrJoin(away, ", ")));
}

Json HealthJson(const HealthReport& health) {
  Json servers = Json::array();
  for (const HealthRow& row : health.rows) {
    servers.push_back({{"role", row.role},
                       {"address", row.address},
                       {"serving", row.serving},
                       {"status", row.status},
                       {"reason", row.reason}});
  }
  return {{"healthy", AllServe(health).ok()},
          {"servers", servers},
          {"shards_unknown", health.shards.ok() ? "" : health.shards.ToString()}};
}

std::string HealthText(const HealthReport& health) {
  Table table({{"ROLE"}, {"ADDRESS"}, {"STATUS"}, {"REASON"}});
  for (const HealthRow& row : health.rows) {
    table.AddRow({row.role, row.address, row.status, row.reason});
  }
  if (!health.shards.ok()) table.AddRow({"shards", "unknown", "UNKNOWN", health.shards.ToString()});
  return table.ToString();
}

}  // namespace kaon::admin_cli
