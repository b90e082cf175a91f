#include "server/coordinator/recovery.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/ballot.h"

namespace kaon::coordinator {

namespace {

// The plan a shard voted for at its applied position + 1, if it holds one.
std::optional<v1::StepPlan> HeldPlan(const v1::ShardState& state) {
  v1::StepPlan plan;
  if (!state.has_prepared() || !plan.ParseFromString(state.prepared().plan())) return std::nullopt;
  if (plan.position() != state.applied_position() + 1) return std::nullopt;
  return plan;
}

absl::Status Lost(int shard, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("shard ", shard, ": ", why));
}

// Every vote is unanimous before a decision and nothing withdraws one, so a shard that has not
// applied the newest record holds the PREPARE of exactly its plan; otherwise it lost what it voted
// for (2.1 rule 5).
absl::Status CheckBehind(int shard, const v1::ShardState& state, const Recovery& recovery,
                         const v1::ShardState& newest) {
  const uint64_t position = newest.applied_position();
  if (state.applied_position() + 1 < position) {
    return Lost(shard,
                absl::StrCat("lost its state: it has applied position ", state.applied_position(),
                             ", shard ", recovery.newest, " has applied ", position));
  }
  const std::optional<v1::StepPlan> held = HeldPlan(state);
  if (!held || !proto::Alike(*held, newest.applied_record().plan())) {
    return Lost(shard, absl::StrCat("lost its state: it does not hold the PREPARE of position ",
                                    position, ", which shard ", recovery.newest, " has applied"));
  }
  return absl::OkStatus();
}

}  // namespace

Recovery Recover(const std::vector<v1::ShardState>& states) {
  Recovery recovery;
  for (int i = 1; i < states.size(); ++i) {
    if (states[i].applied_position() > states[recovery.newest].applied_position()) {
      recovery.newest = i;
    }
  }
  const v1::ShardState& newest = states[recovery.newest];
  const std::string record_bytes = newest.applied_record().SerializeAsString();
  for (int i = 0; i < states.size(); ++i) {
    if (!states[i].data_loss().empty()) {
      recovery.stop = Lost(i, states[i].data_loss());
      return recovery;
    }
    if (states[i].applied_position() == newest.applied_position()) {
      if (states[i].applied_record().SerializeAsString() != record_bytes) {
        recovery.stop =
            Lost(i, absl::StrCat("holds another record of position ", newest.applied_position(),
                                 " than shard ", recovery.newest));
        return recovery;
      }
      continue;
    }
    recovery.stop = CheckBehind(i, states[i], recovery, newest);
    if (!recovery.stop.ok()) return recovery;
    recovery.behind.push_back(i);
  }
  if (newest.applied_position() > 0 && !newest.has_registration()) {
    recovery.stop = Lost(recovery.newest, absl::StrCat("lost its registration, at position ",
                                                       newest.applied_position()));
    return recovery;
  }
  if (!recovery.behind.empty()) return recovery;

  // Rule 3: "if all are alike it must decide".
  const std::optional<v1::StepPlan> first = HeldPlan(states[0]);
  if (!first) return recovery;
  for (const v1::ShardState& state : states) {
    if (!HeldPlan(state) || state.prepared().plan() != states[0].prepared().plan()) return recovery;
  }
  recovery.must_decide = first;
  return recovery;
}

}  // namespace kaon::coordinator
