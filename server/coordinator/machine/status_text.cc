#include "server/coordinator/machine/status_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/machine/entry_name.h"
#include "server/coordinator/machine/rollbacks.h"

namespace kaon::coordinator {

namespace {

constexpr size_t kRanksShown = 8;
constexpr size_t kShardsShown = 4;

// Returns how to make a stopped job go on, where the reason does not say it.
std::string Advice(const absl::Status& stopped) {
  if (absl::IsInternal(stopped)) {
    return "; run one version on all servers, then restart the coordinators";
  }
  return "";
}

std::string LostText(const std::map<uint32_t, std::string>& lost) {
  std::vector<uint32_t> silent;
  std::string late;
  for (const auto& [rank, why] : lost) {
    if (why.empty()) {
      silent.push_back(rank);
    } else {
      absl::StrAppend(&late, "; without rank ", rank, " (lost: ", why, ")");
    }
  }
  if (silent.empty()) return late;
  return absl::StrCat("; without rank ", absl::StrJoin(silent, ", "), " (lost)", late);
}

std::string IdleText(const std::vector<ShardView>& shards) {
  const absl::Status same = CheckSameDurability(StatesOf(shards));
  return absl::StrCat("idle: no job is registered",
                      same.ok() ? "" : ", and none can be: ", same.message());
}

// Returns "rank 0, 1" with at most kRanksShown of the ranks.
std::string RanksText(std::vector<uint32_t> ranks) {
  const size_t more = ranks.size() > kRanksShown ? ranks.size() - kRanksShown : 0;
  ranks.resize(ranks.size() - more);
  return absl::StrCat("rank ", absl::StrJoin(ranks, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::string ReadyText(const StatusFacts& facts) {
  if (!facts.job.registration) return IdleText(facts.shards);
  const uint64_t step = facts.job.NextStep();
  const std::string what =
      facts.job.weights_loaded ? absl::StrCat("step ", step) : "initial weights";
  if (facts.job.registration->definition().paused()) {
    const std::string drains =
        facts.drained ? absl::StrCat("; shard ", *facts.drained, " is being drained") : "";
    return absl::StrCat(what, ": paused until kaonctl resume", drains,
                        LostText(facts.membership.lost()));
  }
  if (facts.drained) {
    return absl::StrCat(what, ": waiting for shard ", *facts.drained, ", which is being drained");
  }
  return absl::StrCat(what, ": waiting for ", RanksText(facts.membership.MissingRanks(step)),
                      LostText(facts.membership.lost()));
}

std::vector<int> ShardsToWaitFor(const StatusFacts& facts) {
  std::vector<int> waiting;
  for (size_t i = 0; i < facts.shards.size(); ++i) {
    const ShardView& view = facts.shards[i];
    const bool done = facts.phase == MachinePhase::kReading ? view.state.has_value()
                      : facts.phase == MachinePhase::kApplying
                          ? view.applied_position >= facts.job.position
                      : facts.phase == MachinePhase::kRound ? view.prepared.has_value()
                                                            : true;
    if (!done) waiting.push_back(static_cast<int>(i));
  }
  return waiting;
}

std::string WorkText(const StatusFacts& facts) {
  if (!facts.stopped.ok()) {
    return absl::StrCat("stopped: ", facts.stopped.ToString(), Advice(facts.stopped));
  }
  const std::string shards =
      absl::StrCat("waiting for shard ", absl::StrJoin(ShardsToWaitFor(facts), ", "));
  switch (facts.phase) {
    case MachinePhase::kStandby:
      return facts.holder.empty()
                 ? "standing by: no holder known"
                 : absl::StrCat("standing by: ", facts.holder, " holds the shards");
    case MachinePhase::kReading:
      return absl::StrCat("reading the shards: ", shards);
    case MachinePhase::kApplying:
      return absl::StrCat("applying ", NameOfEntry(facts.job.NewestPlan()), ": ", shards);
    case MachinePhase::kReady:
      return ReadyText(facts);
    case MachinePhase::kRound:
      break;
  }
  const std::string gone = facts.absent.empty()
                               ? ""
                               : absl::StrCat("waiting for ", RanksText(facts.absent),
                                              ", whose workers are not connected, then ");
  return absl::StrCat(NameOfEntry(facts.plan), " round ", facts.plan.round(), ": ", gone, shards,
                      LostText(facts.membership.lost()));
}

}  // namespace

std::vector<std::string> ShardProblems(const StatusFacts& facts) {
  const std::vector<int> waiting = ShardsToWaitFor(facts);
  std::vector<std::string> problems(facts.shards.size());
  for (size_t i = 0; i < facts.shards.size(); ++i) {
    const ShardView& view = facts.shards[i];
    const bool is_awaited = std::count(waiting.begin(), waiting.end(), i) > 0;
    if (!view.connected) {
      problems[i] = view.ended.ok() ? "not connected" : view.ended.ToString();
    } else if (facts.phase > MachinePhase::kReading && view.silence > 2 * facts.takeover) {
      problems[i] = absl::StrCat("not heard for ", absl::FormatDuration(view.silence));
    } else if (is_awaited) {
      problems[i] = view.obstacle;
    }
  }
  return problems;
}

std::string PhaseText(const StatusFacts& facts) {
  std::string text = WorkText(facts);
  const std::vector<std::string> problems = ShardProblems(facts);
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

}  // namespace kaon::coordinator
