#include "tests/simulation/delivered_answers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::simulation {

void DeliveredAnswers::OnDelivered(int coordinator, int shard,
                                   const v1::ShardToCoordinator& message) {
  if (!message.has_state() && !message.has_prepared()) return;
  Answers& answers = answers_[{coordinator, shard}];
  const int order = proto::Compare(message.promised(), answers.ballot);
  // A late copy: it counts for nothing.
  if (order < 0) return;
  if (order > 0) {
    answers = Answers();
    answers.ballot = message.promised();
  }
  if (message.has_prepared()) return AddPrepared(message.prepared(), answers);
  const v1::ShardState& state = message.state();
  answers.is_read = true;
  answers.applied_position = std::max(answers.applied_position, state.applied_position());
  if (state.has_applied_record()) {
    answers.plans.insert(state.applied_record().plan().SerializeAsString());
  }
  if (state.has_prepared()) AddPrepared(state.prepared(), answers);
}

void DeliveredAnswers::AddPrepared(const v1::Prepared& prepared, Answers& answers) {
  answers.plans.insert(prepared.plan());
  v1::StepPlan plan;
  plan.ParseFromString(prepared.plan());
  if (proto::CompareRound(plan, answers.newest) > 0) answers.newest = std::move(plan);
}

const DeliveredAnswers::Answers* DeliveredAnswers::Read(int coordinator, int shard,
                                                        const v1::Ballot& ballot,
                                                        std::string* why) const {
  const auto found = answers_.find({coordinator, shard});
  if (found != answers_.end() && found->second.is_read &&
      proto::Compare(found->second.ballot, ballot) == 0) {
    return &found->second;
  }
  *why = absl::StrCat(
      "what shard ", shard, " answered its promise; the newest answer that came is ",
      found == answers_.end() ? "none"
                              : absl::StrCat("of ballot ", proto::ToString(found->second.ballot)));
  return nullptr;
}

// Rule 1: "A coordinator first takes a higher ballot, then reads: only answers carrying its own
// ballot, sent after that shard's promise was durable, count." Rule 3: "It may open a round for t
// only after reading all shards so, none at t, and not all prepared alike".
std::string DeliveredAnswers::CheckPlan(int coordinator, const v1::Ballot& ballot,
                                        const v1::StepPlan& plan) const {
  const std::string what = absl::StrCat("ballot ", proto::ToString(ballot), " opened round ",
                                        plan.round(), " at position ", plan.position());
  for (int shard = 0; shard < num_shards_; ++shard) {
    std::string why;
    const Answers* answers = Read(coordinator, shard, ballot, &why);
    if (answers == nullptr) return absl::StrCat(what, " without ", why);
    if (answers->applied_position >= plan.position()) {
      return absl::StrCat(what, ", shard ", shard, " had answered that it is at position ",
                          answers->applied_position);
    }
  }
  return "";
}

// "decisions use only answers of their own ballot": every shard has answered that it holds the
// PREPARE of this very plan, or has applied it.
std::string DeliveredAnswers::CheckDecision(int coordinator, const v1::Ballot& ballot,
                                            const v1::StepPlan& plan) const {
  const std::string what = absl::StrCat("ballot ", proto::ToString(ballot), " decided position ",
                                        plan.position(), " with the plan of ballot ",
                                        proto::ToString(plan.ballot()), " round ", plan.round());
  const std::string bytes = plan.SerializeAsString();
  for (int shard = 0; shard < num_shards_; ++shard) {
    std::string why;
    const Answers* answers = Read(coordinator, shard, ballot, &why);
    if (answers == nullptr) return absl::StrCat(what, " without ", why);
    if (answers->plans.count(bytes) > 0) continue;
    return absl::StrCat(what, ", which shard ", shard,
                        " has not answered; under that ballot its newest PREPARE is of position ",
                        answers->newest.position(), ", ballot ",
                        proto::ToString(answers->newest.ballot()), " round ",
                        answers->newest.round());
  }
  return "";
}

}  // namespace kaon::simulation
