#include "server/admin_cli/steps/follow_steps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

namespace {

// Entries to ask for once a second, and when those are not enough.
constexpr uint32_t kUsual = 50;
constexpr uint32_t kMost = 1000;

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

std::string StepLines::New(const v1::StepHistoryResponse& history, bool* lost) {
  std::string lines;
  const uint64_t before = last_position_;
  const Json steps = StepsJson(history)["steps"];
  for (const Json& step : steps) {
    const auto position = step["position"].get<uint64_t>();
    if (position <= last_position_) continue;
    last_position_ = position;
    absl::StrAppend(&lines, step.dump(), "\n");
  }
  *lost = before > 0 && !steps.empty() && steps.front()["position"].get<uint64_t>() > before + 1;
  return lines;
}

absl::Status FollowSteps(const ReadNewest& read, uint32_t limit, const std::function<bool()>& pause,
                         std::ostream& out, std::ostream& errors) {
  StepLines lines;
  bool is_first = true;
  bool is_away = false;
  do {
    absl::StatusOr<v1::StepHistoryResponse> history = read(is_first ? limit : kUsual);
    if (history.ok() && !is_first) {
      StepLines peek = lines;
      bool lost = false;
      peek.New(*history, &lost);
      // A fast job has decided more meanwhile.
      if (lost) history = read(kMost);
    }
    if (!history.ok()) {
      if (!MayPass(history.status())) return history.status();
      if (!is_away) errors << "kaonctl: " << history.status() << "; asking again\n";
      is_away = true;
      continue;
    }
    is_away = false;
    is_first = false;
    bool lost = false;
    const std::string text = lines.New(*history, &lost);
    if (lost) errors << "kaonctl: entries are missing: more than " << kMost << " came at once\n";
    out << text << std::flush;
  } while (out.good() && pause());
  return absl::OkStatus();
}

}  // namespace kaon::admin_cli
