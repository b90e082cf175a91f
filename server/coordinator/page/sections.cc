#include "server/coordinator/page/sections.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/config/durability.h"
#include "server/coordinator/page/curve_section.h"
#include "server/coordinator/page/html.h"
#include "server/monitor/units.h"

namespace kaon::coordinator {

namespace {

using monitor::Bytes;
using monitor::Seconds;
using monitor::TimeText;

std::string OrDash(std::string text) { return text.empty() ? "-" : text; }

// Returns why the shard is not well, or "".
std::string ProblemOf(const v1::ShardStatus& shard) {
  if (!shard.problem().empty()) return shard.problem();
  const v1::DescribeShardResponse& facts = shard.description();
  if (!facts.state().data_loss().empty()) return facts.state().data_loss();
  if (facts.state().rollback_needed()) return "restarted: the job must be rolled back";
  if (!facts.journal().read_only_reason().empty()) return facts.journal().read_only_reason();
  return facts.snapshot().problem();
}

// A word and a sign, so that nobody needs to tell colours apart.
std::string Badge(bool good, absl::string_view word) {
  return absl::StrCat("<span class=\"", good ? "good" : "bad", "\">", good ? "\u25cf " : "\u25b2 ",
                      Escape(word), "</span>");
}

std::string Fact(absl::string_view name, absl::string_view value) {
  // A long one is set smaller.
  return absl::StrCat("<div><dt>", Escape(name), "</dt><dd",
                      value.size() > 14 ? " class=\"long\"" : "", ">", Escape(value),
                      "</dd></div>");
}

// Returns steps per second over all points; absent without times.
std::optional<double> StepRate(const Curves& curves) {
  if (curves.points.size() < 2) return std::nullopt;
  const StepPoint& first = curves.points.front();
  const StepPoint& last = curves.points.back();
  if (first.unix_millis == 0 || last.unix_millis <= first.unix_millis) return std::nullopt;
  return 1000 * static_cast<double>(last.step - first.step) /
         static_cast<double>(last.unix_millis - first.unix_millis);
}

std::string Summary(const PageFacts& data, const Curves& curves) {
  const v1::GetStatusResponse& status = data.status;
  const bool shards_up = std::all_of(status.shards().begin(), status.shards().end(),
                                     [](const auto& shard) { return ProblemOf(shard).empty(); });
  const bool stopped = absl::StrContains(status.phase(), "stopped");
  std::string html = absl::StrCat(
      "<p class=\"phase\" role=\"status\">",
      !data.problem.ok() ? Badge(false, "no answer")
      : stopped          ? Badge(false, "stopped")
      : !shards_up       ? Badge(false, "a shard has a problem")
      : status.holder()  ? Badge(true, "serving")
                         : Badge(true, "standby"),
      " ", Escape(data.problem.ok() ? status.phase() : data.problem.ToString()), "</p><dl>");
  // The reader may have chosen a range of older steps.
  StepCurves log;
  log.Add(data.newest);
  const std::shared_ptr<const Curves> now = log.Read(0, UINT64_MAX);
  const StepPoint* const newest = now->points.empty() ? nullptr : &now->points.back();
  const auto skipped = std::count_if(curves.points.begin(), curves.points.end(),
                                     [](const StepPoint& point) { return point.skipped; });
  absl::StrAppend(
      &html, Fact("Step", absl::StrCat(status.applied_step())),
      Fact("Loss", Number(newest == nullptr ? std::nullopt : newest->loss)),
      Fact("Gradient norm", Number(newest == nullptr ? std::nullopt : newest->grad_norm)),
      Fact("Steps / s", Number(StepRate(*now))),
      Fact("Skipped, of those shown", absl::StrCat(skipped)),
      Fact("Loss scale", newest == nullptr ? "-" : Number(newest->loss_scale)),
      Fact("Coordinator since", OrDash(TimeText(status.started_unix_millis()))),
      Fact("Holder", OrDash(status.holder() ? "this coordinator" : status.holder_address())));
  return absl::StrCat(html, "</dl>");
}

struct PhaseMean {
  double busy = 0;
  double hidden = 0;
};

const std::vector<std::string>& PhaseNames() {
  static const std::vector<std::string> names = {"receive",   "fold",   "prepare", "journal",
                                                 "speculate", "decide", "apply",   "pull"};
  return names;
}

// Returns a time in microseconds if it is short.
std::string Brief(double seconds) {
  return seconds > 0 && seconds < 0.00095 ? absl::StrFormat("%.0f \u00b5s", seconds * 1e6)
                                          : Seconds(seconds);
}

std::string PhaseText(const PhaseMean& mean) {
  if (mean.busy <= 0) return "-";
  return absl::StrCat(Brief(mean.busy),
                      mean.hidden > 0 ? absl::StrCat(" (", Brief(mean.hidden), ")") : "");
}

// Returns a bar of the phases, each as long as its part of all work.
std::string PhaseBar(const std::map<std::string, PhaseMean>& means) {
  double all = 0;
  for (const auto& [name, mean] : means) all += mean.busy;
  if (all <= 0) return "-";
  std::string svg =
      "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">";
  double begin = 0;
  for (size_t i = 0; i < PhaseNames().size(); ++i) {
    const auto found = means.find(PhaseNames()[i]);
    if (found == means.end()) continue;
    const double width = 100 * found->second.busy / all;
    absl::StrAppendFormat(&svg, "<rect class=\"p%d\" x=\"%.2f\" width=\"%.2f\" height=\"8\"/>", i,
                          begin, width);
    begin += width;
  }
  return absl::StrCat(svg, "</svg>");
}

std::string Phases(const PageFacts& data) {
  std::vector<std::string> columns = {"Shard", "Step", "Idle"};
  columns.insert(columns.end(), PhaseNames().begin(), PhaseNames().end());
  columns.push_back("Share");
  HtmlTable table(
      "Mean of the newest steps: time of a step, its idle part, which is mostly waiting "
      "for others, and the work of all threads in each phase; in brackets what was "
      "hidden behind other phases",
      columns);
  for (int i = 0; i < std::min(data.newest.phases_size(), kMaxRows); ++i) {
    const v1::ShardPhases& shard = data.newest.phases(i);
    // The newest step is still open.
    const int steps = shard.steps_size() - 1;
    if (steps < 1) continue;
    double total = 0;
    double active = 0;
    std::map<std::string, PhaseMean> means;
    for (int step = 0; step < steps; ++step) {
      total += static_cast<double>(shard.steps(step).total_microseconds()) / 1e6 / steps;
      active += static_cast<double>(shard.steps(step).active_microseconds()) / 1e6 / steps;
      for (const v1::Phase& phase : shard.steps(step).phases()) {
        PhaseMean& mean = means[phase.name()];
        mean.busy += static_cast<double>(phase.busy_microseconds()) / 1e6 / steps;
        mean.hidden += static_cast<double>(phase.hidden_microseconds()) / 1e6 / steps;
      }
    }
    std::vector<Cell> row = {NumberCell(absl::StrCat(shard.shard())), NumberCell(Brief(total)),
                             NumberCell(Brief(std::max(0.0, total - active)))};
    for (size_t name = 0; name < PhaseNames().size(); ++name) {
      const auto found = means.find(PhaseNames()[name]);
      row.push_back(NumberCell(found == means.end() ? "-" : PhaseText(found->second)));
    }
    row.push_back({PhaseBar(means)});
    table.AddRow(row);
  }
  std::string legend = "<ul class=\"legend\">";
  for (size_t i = 0; i < PhaseNames().size(); ++i) {
    absl::StrAppend(&legend, "<li><svg viewBox=\"0 0 22 8\" aria-hidden=\"true\"><rect class=\"p",
                    i, "\" width=\"22\" height=\"8\"/></svg> ", PhaseNames()[i], "</li>");
  }
  const std::string html = table.Html();
  return html.empty() ? "<p class=\"none\">No steps yet.</p>" : absl::StrCat(html, legend, "</ul>");
}

// Returns the rows of those first for which `is_first` holds, at most kMaxRows.
template <typename Rows, typename IsFirst>
std::vector<const typename Rows::value_type*> Pick(const Rows& rows, IsFirst is_first) {
  std::vector<const typename Rows::value_type*> picked;
  for (const bool first : {true, false}) {
    for (const auto& row : rows) {
      if (is_first(row) == first && picked.size() < kMaxRows) picked.push_back(&row);
    }
  }
  return picked;
}

// Returns a line that says how many rows there are, if not all are shown.
std::string More(int all, absl::string_view command) {
  if (all <= kMaxRows) return "";
  return absl::StrCat("<p>", kMaxRows, " of ", all, " are shown, those with a problem first; ",
                      Escape(command), " has all.</p>");
}

std::string Shards(const PageFacts& data) {
  HtmlTable table("Each shard, those with a problem first",
                  {"Shard", "State", "Address", "Step", "Memory", "Disk", "Snapshot", "Durability",
                   "Recovery", "Backend"});
  for (const v1::ShardStatus* const shard :
       Pick(data.status.shards(), [](const auto& one) { return !ProblemOf(one).empty(); })) {
    const std::string problem = ProblemOf(*shard);
    const v1::DescribeShardResponse& facts = shard->description();
    const bool known = shard->has_description();
    const Cell state = {
        problem.empty() ? Badge(true, "up")
                        : absl::StrCat(Badge(false, shard->connected() ? "problem" : "down"),
                                       "<br><small>", Escape(problem.substr(0, 300)), "</small>")};
    std::vector<Cell> row = {NumberCell(absl::StrCat(shard->shard())), state,
                             TextCell(shard->address())};
    if (!known) {
      for (int i = 0; i < 7; ++i) row.push_back(TextCell("-"));
      table.AddRow(row);
      continue;
    }
    const auto used = static_cast<double>(facts.used_bytes());
    const auto budget = static_cast<double>(facts.capacity_bytes());
    row.push_back(NumberCell(absl::StrCat(facts.state().applied_step())));
    row.push_back(
        MeterCell(used, budget,
                  absl::StrCat(Bytes(facts.used_bytes()), " of ", Bytes(facts.capacity_bytes()))));
    row.push_back(NumberCell(Bytes(facts.journal().bytes())));
    row.push_back(NumberCell(
        facts.snapshot().position() == 0 ? "-" : absl::StrCat("step ", facts.snapshot().step())));
    row.push_back(TextCell(
        config::DurabilityText(facts.state().durability(), facts.state().interval_steps())));
    row.push_back(NumberCell(Seconds(facts.journal().recovery_seconds())));
    row.push_back(TextCell(facts.backend()));
    table.AddRow(row);
  }
  return absl::StrCat(table.Html(), More(data.status.shards_size(), "kaonctl status"));
}

std::string Tiers(const PageFacts& data) {
  HtmlTable table(
      "Where the parameters of each shard live",
      {"Shard", "Tier", "Parameters", "Used", "Read", "Written", "Hits / misses", "Steps waited"});
  for (int i = 0; i < std::min(data.status.shards_size(), kMaxRows); ++i) {
    const v1::ShardStatus& shard = data.status.shards(i);
    for (const v1::TierStatus& tier : shard.description().tiers()) {
      const bool disk = !tier.path().empty();
      table.AddRow(
          {NumberCell(absl::StrCat(shard.shard())), TextCell(tier.name()),
           NumberCell(absl::StrCat(tier.parameters())),
           MeterCell(static_cast<double>(tier.used_bytes()),
                     static_cast<double>(tier.capacity_bytes()),
                     absl::StrCat(Bytes(tier.used_bytes()), " of ", Bytes(tier.capacity_bytes()))),
           NumberCell(disk ? Bytes(tier.read_bytes()) : "-"),
           NumberCell(disk ? Bytes(tier.written_bytes()) : "-"),
           NumberCell(disk ? absl::StrCat(tier.hits(), " / ", tier.misses()) : "-"),
           NumberCell(disk ? Seconds(tier.waited_seconds()) : "-")});
    }
  }
  return absl::StrCat(table.Html(), More(data.status.shards_size(), "kaonctl tiers"));
}

// Returns how far the worker is behind the open step.
std::string LagOf(const v1::WorkerStatus& worker, uint64_t open_step) {
  if (worker.begun_step() == 0) return "has not begun";
  const uint64_t behind = open_step > worker.begun_step() ? open_step - worker.begun_step() : 0;
  return behind == 0 ? "none" : absl::StrCat(behind, behind == 1 ? " step" : " steps");
}

std::string Workers(const PageFacts& data) {
  if (!data.status.holder()) return "<p class=\"none\">Only the holder knows the workers.</p>";
  const uint64_t open = data.status.applied_step() + 1;
  HtmlTable table("Each worker, those that have not begun the open step first",
                  {"Rank", "Begun step", "Lag", "Gradient norm", "Outliers", "Attempt"});
  for (const v1::WorkerStatus* const worker :
       Pick(data.status.workers(), [](const auto& one) { return one.begun_step() == 0; })) {
    table.AddRow(
        {NumberCell(absl::StrCat(worker->rank())),
         NumberCell(worker->begun_step() == 0 ? "-" : absl::StrCat(worker->begun_step())),
         TextCell(LagOf(*worker, open)),
         NumberCell(Number(worker->has_grad_norm() ? std::optional<double>(worker->grad_norm())
                                                   : std::nullopt)),
         NumberCell(absl::StrCat(worker->grad_norm_outliers())),
         NumberCell(
             absl::StrCat(worker->attempt().ballot().counter(), ".", worker->attempt().number()))});
  }
  const std::string html = table.Html();
  return html.empty() ? "<p class=\"none\">No worker has joined.</p>"
                      : absl::StrCat(html, More(data.status.workers_size(), "kaonctl worker list"));
}

// Returns what a log entry did, or "" for an applied step.
std::string EntryText(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  if (plan.has_restore()) {
    return absl::StrCat("restored from checkpoint ", plan.restore().checkpoint());
  }
  if (plan.has_rollback()) return absl::StrCat("rolled back: ", plan.rollback().reason());
  if (plan.has_group_change()) {
    std::string text = "changed";
    for (const v1::GroupSetting& setting : plan.group_change().settings()) {
      absl::StrAppend(&text, " ", setting.group(), setting.group().empty() ? "" : ".",
                      setting.field(), "=", setting.value());
    }
    return text;
  }
  if (!plan.has_step()) return "";
  if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) return "loaded the initial weights";
  if (record.decision().outcome() == v1::OUTCOME_APPLY) return "";
  return absl::StrCat("skipped step ", plan.step().step(), ": ", record.decision().reason());
}

std::string Entries(const PageFacts& data, const Curves& curves) {
  HtmlTable table("Recent entries of the log that are no applied step",
                  {"Position", "Time", "What happened"});
  constexpr int kMost = 30;
  constexpr size_t kMostSkips = 10;
  int rows = 0;
  uint64_t oldest = UINT64_MAX;
  for (int i = data.newest.records_size() - 1; i >= 0; --i) {
    const v1::StepRecord& record = data.newest.records(i);
    const uint64_t position = record.plan().position();
    oldest = std::min(oldest, position);
    const std::string text = EntryText(record);
    if (text.empty() || ++rows > kMost) continue;
    const auto time = data.newest.decided_unix_millis().find(position);
    table.AddRow(
        {NumberCell(absl::StrCat(position)),
         TextCell(time == data.newest.decided_unix_millis().end() ? "-"
                                                                  : OrDash(TimeText(time->second))),
         TextCell(text.substr(0, 400))});
  }
  size_t skips = 0;
  for (auto point = curves.points.rbegin(); point != curves.points.rend(); ++point) {
    if (!point->skipped || point->position >= oldest || ++skips > kMostSkips) continue;
    table.AddRow({NumberCell(absl::StrCat(point->position)),
                  TextCell(OrDash(TimeText(point->unix_millis))),
                  TextCell(absl::StrCat("skipped step ", point->step, ": ", point->reason))});
  }
  const std::string html = table.Html();
  return html.empty() ? "<p class=\"none\">No restore, change or skip among the steps shown.</p>"
                      : html;
}

std::string Events(const PageFacts& data) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> counts;
  for (const v1::EventCount& event : data.status.events())
    counts[event.name()].first = event.count();
  for (const v1::ShardStatus& shard : data.status.shards()) {
    for (const v1::EventCount& event : shard.description().events()) {
      counts[event.name()].second += event.count();
    }
  }
  HtmlTable table("Events since the servers started (docs/kaonctl.md explains them)",
                  {"Event", "Coordinator", "Shards"});
  for (const auto& [name, count] : counts) {
    table.AddRow({TextCell(name), NumberCell(absl::StrCat(count.first)),
                  NumberCell(absl::StrCat(count.second))});
  }
  return table.Html();
}

std::string Checkpoints(const PageFacts& data) {
  if (!data.checkpoints_problem.ok()) {
    return absl::StrCat("<p class=\"none\">", Escape(data.checkpoints_problem.message()), "</p>");
  }
  const std::string when = TimeText(data.checkpoints_unix_millis);
  HtmlTable table(absl::StrCat("In the checkpoint directory", when.empty() ? "" : " at ", when,
                               ", newest first"),
                  {"Name", "Step", "Size", "Shards", "Created", "State"});
  for (int i = 0; i < std::min(data.checkpoints.checkpoints_size(), kMaxRows); ++i) {
    const v1::CheckpointRow& row = data.checkpoints.checkpoints(i);
    const v1::CheckpointSummary& checkpoint = row.checkpoint();
    const bool good = row.problem().empty();
    table.AddRow({TextCell(checkpoint.id()),
                  NumberCell(good ? absl::StrCat(checkpoint.step()) : "-"),
                  NumberCell(good ? Bytes(checkpoint.bytes()) : "-"),
                  NumberCell(good ? absl::StrCat(checkpoint.num_shards()) : "-"),
                  TextCell(OrDash(TimeText(checkpoint.created_unix_millis()))),
                  {good ? Badge(true, "good")
                        : absl::StrCat(Badge(false, "problem"), " ", Escape(row.problem()))}});
  }
  const std::string html = table.Html();
  return html.empty() ? "<p class=\"none\">No checkpoint yet.</p>" : html;
}

}  // namespace

std::vector<Section> Sections(const PageFacts& data, const Curves& curves) {
  return {{"summary", Summary(data, curves)},
          {"curves", CurvesHtml(curves)},
          {"phases", Phases(data)},
          {"shards", Shards(data)},
          {"tiers", Tiers(data)},
          {"workers", Workers(data)},
          {"entries", Entries(data, curves)},
          {"events", Events(data)},
          {"checkpoints", Checkpoints(data)}};
}

}  // namespace kaon::coordinator
