#include "server/admin_cli/steps/follow_steps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/admin_cli/live/keep_asking.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

namespace {

// Entries to ask for once a second, and when those are not enough.
constexpr uint32_t kUsual = 50;
constexpr uint32_t kMost = 1000;

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
  const auto ask = [&]() -> absl::Status {
    KAON_ASSIGN_OR_RETURN(v1::StepHistoryResponse history, read(is_first ? limit : kUsual));
    bool lost = false;
    if (!is_first) {
      StepLines peek = lines;
      peek.New(history, &lost);
    }
    // A fast job has decided more meanwhile.
    if (lost) {
      KAON_ASSIGN_OR_RETURN(history, read(kMost));
    }
    is_first = false;
    const std::string text = lines.New(history, &lost);
    if (lost) errors << "kaonctl: entries are missing: more than " << kMost << " came at once\n";
    out << text << std::flush;
    return absl::OkStatus();
  };
  return KeepAsking(ask, pause, out, errors);
}

}  // namespace kaon::admin_cli
