// What the machine is doing, for people.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/entry_name.h"
#include "server/coordinator/step_machine.h"

namespace kaon::coordinator {

namespace {

constexpr size_t kRanksShown = 8;

std::string LostText(const std::set<uint32_t>& lost) {
  return lost.empty() ? "" : absl::StrCat("; without rank ", absl::StrJoin(lost, ", "), " (lost)");
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

std::string StepMachine::PhaseText() const {
  if (!stopped_.ok()) return absl::StrCat("stopped: ", stopped_.ToString());
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
      if (!registration_) return "idle: no job is registered";
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
