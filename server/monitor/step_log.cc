#include "server/monitor/step_log.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/ballot.h"
#include "server/config/log_facts.h"

namespace kaon::monitor {

namespace {

// The servers of a healthy cluster log less than 1 MB a day together.
constexpr absl::Duration kInterval = absl::Minutes(10);
constexpr absl::Duration kShortInterval = absl::Seconds(1);
constexpr size_t kTraceIdBytes = 16;

}  // namespace

void NoteEntry(const v1::StepPlan& plan) {
  if (plan.has_job_deletion()) return config::SetLogJob("", std::nullopt);
  std::optional<uint64_t> step;
  // The initial weights are step 0.
  if (plan.has_step()) step = plan.step().step();
  config::SetLogJob(plan.job(), step);
  // A shard that missed the plan knows no trace of the step, and that of another step is over.
  if (step.has_value()) config::SetLogTrace(*step, 0, "");
}

void NoteTrace(const v1::StepPlan* accepted, const v1::CoordinatorToShard& message) {
  const v1::StepPlan& plan = message.plan();
  if (accepted == nullptr || !plan.has_step() || plan.position() != accepted->position() ||
      proto::CompareRound(plan, *accepted) != 0) {
    return;
  }
  const bool known = message.trace_id().size() == kTraceIdBytes;
  config::SetLogTrace(plan.step().step(), 0,
                      known ? absl::BytesToHexString(message.trace_id()) : "");
}

std::string StepLog::Line(const v1::StepRecord& record, const std::string& name, absl::Time now) {
  const v1::StepDecision& decision = record.decision();
  const bool applied = decision.outcome() == v1::OUTCOME_APPLY;
  std::string line = absl::StrCat(name, applied ? " applied" : " skipped: ", decision.reason());
  if (record.plan().step().kind() != v1::STEP_KIND_TRAIN) return line;
  ++steps_;
  if (!applied) ++skipped_;
  const bool changed = decision.outcome() != last_outcome_;
  if (now - last_line_ < (changed ? kShortInterval : kInterval)) return "";
  if (steps_ > 1) {
    const absl::Duration passed = now - last_line_;
    absl::StrAppend(&line, "; ", steps_, " steps in ", absl::FormatDuration(passed), ", ",
                    absl::StrFormat("%.1f", steps_ / absl::ToDoubleSeconds(passed)),
                    " per second, ", skipped_, " of them skipped");
  }
  if (decision.has_loss()) absl::StrAppend(&line, "; loss ", decision.loss());
  if (decision.has_grad_norm()) absl::StrAppend(&line, "; gradient norm ", decision.grad_norm());
  absl::StrAppend(&line, "; ", record.plan().step().members_size(), " workers");
  last_line_ = now;
  last_outcome_ = decision.outcome();
  steps_ = 0;
  skipped_ = 0;
  return line;
}

}  // namespace kaon::monitor
