// What the machine is doing, for people.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/rollback_choice.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

namespace {

constexpr size_t kRanksShown = 8;
constexpr size_t kShardsShown = 4;

// What lets a stopped job go on, where the reason does not say it.
std::string Advice(const absl::Status& stopped) {
  if (absl::IsDataLoss(stopped)) {
    return "; to go on, start all shards on empty data directories and run: kaonctl checkpoint "
           "restore";
  }
  if (absl::IsInternal(stopped)) {
    return "; run one version on all servers, then restart the coordinators";
  }
  return "";
}

std::string LostText(const std::set<uint32_t>& lost) {
  return lost.empty() ? "" : absl::StrCat("; without rank ", absl::StrJoin(lost, ", "), " (lost)");
}

std::string IdleText(const std::vector<ShardView>& shards) {
  std::vector<v1::ShardState> states;
  for (const ShardView& view : shards) states.push_back(view.state.value_or(v1::ShardState()));
  const absl::Status same = CheckSameDurability(states);
  return absl::StrCat("idle: no job is registered",
                      same.ok() ? "" : ", and none can be: ", same.message());
}

}  // namespace

std::vector<int> StepMachine::ShardsToWaitFor() const {
  std::vector<int> waiting;
  for (int i = 0; i < shards_.size(); ++i) {
    const ShardView& view = shards_[i];
    const bool done = phase_ == Phase::kReading    ? view.state.has_value()
                      : phase_ == Phase::kApplying ? view.applied_position >= position_
                      : phase_ == Phase::kRound    ? view.prepared.has_value()
                                                   : true;
    if (!done) waiting.push_back(i);
  }
  return waiting;
}

std::vector<std::string> StepMachine::ShardProblems() const {
  const std::vector<int> waiting = ShardsToWaitFor();
  std::vector<std::string> problems(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardView& view = shards_[i];
    const bool is_awaited = std::count(waiting.begin(), waiting.end(), i) > 0;
    if (!view.connected) {
      problems[i] = view.ended.ok() ? "not connected" : view.ended.ToString();
    } else if (IsHolder() && view.silence > 2 * options_.takeover) {
      problems[i] = absl::StrCat("not heard for ", absl::FormatDuration(view.silence));
    } else if (is_awaited) {
      problems[i] = view.obstacle;
    }
  }
  return problems;
}

std::string StepMachine::PhaseText() const {
  std::string text = WorkText();
  const std::vector<std::string> problems = ShardProblems();
  size_t with_problem = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].empty() || ++with_problem > kShardsShown) continue;
    absl::StrAppend(&text, "; shard ", i, ": ", problems[i]);
  }
  if (with_problem > kShardsShown) {
    absl::StrAppend(&text, "; and ", with_problem - kShardsShown, " more shards");
  }
  return text;
}

std::string StepMachine::WorkText() const {
  if (!stopped_.ok()) {
    return absl::StrCat("stopped: ", stopped_.ToString(), Advice(stopped_));
  }
  const std::string shards =
      absl::StrCat("waiting for shard ", absl::StrJoin(ShardsToWaitFor(), ", "));
  switch (phase_) {
    case Phase::kStandby:
      return HolderHint().empty()
                 ? "standing by: no holder known"
                 : absl::StrCat("standing by: ", HolderHint(), " holds the shards");
    case Phase::kReading:
      return absl::StrCat("reading the shards: ", shards);
    case Phase::kApplying:
      return absl::StrCat("applying ", NameOfEntry(record_->plan()), ": ", shards);
    case Phase::kReady: {
      if (!registration_) return IdleText(shards_);
      std::vector<uint32_t> missing = membership_.MissingRanks(NextStep());
      const size_t more = missing.size() > kRanksShown ? missing.size() - kRanksShown : 0;
      missing.resize(missing.size() - more);
      return absl::StrCat(weights_loaded_ ? absl::StrCat("step ", NextStep()) : "initial weights",
                          ": waiting for rank ", absl::StrJoin(missing, ", "),
                          more > 0 ? absl::StrCat(" and ", more, " more") : "",
                          LostText(membership_.lost()));
    }
    case Phase::kRound:
      break;
  }
  return absl::StrCat(NameOfEntry(plan_), " round ", round_, ": ", shards,
                      LostText(membership_.lost()));
}

}  // namespace kaon::coordinator
