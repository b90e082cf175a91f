#include "server/shard/transport/control_backlog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"

namespace kaon::shard {

std::string ControlBacklog::KindOf(const v1::CoordinatorToShard& message) {
  const v1::StepPlan& plan = message.has_decision() ? message.decision().plan() : message.plan();
  return absl::StrCat(message.shard(), "/", message.num_shards(), " ", message.body_case(), " ",
                      proto::ToString(message.ballot()), " ", plan.position(), " ",
                      proto::ToString(plan.ballot()), " ", plan.round(), " ",
                      message.checkpoint().position(), " ", message.checkpoint().id());
}

ControlBacklog::Fate ControlBacklog::Add(v1::CoordinatorToShard& message) {
  std::string kind = KindOf(message);
  if (working_.empty()) {
    working_ = std::move(kind);
    return Fate::kWork;
  }
  const bool repeated =
      kind == working_ || std::any_of(waiting_.begin(), waiting_.end(),
                                      [&](const auto& waiting) { return KindOf(waiting) == kind; });
  if (message.has_heartbeat() || repeated || waiting_.size() >= kMaxWaiting) return Fate::kDropped;
  waiting_.push_back(std::move(message));
  return Fate::kWaits;
}

std::optional<v1::CoordinatorToShard> ControlBacklog::Next() {
  working_.clear();
  if (waiting_.empty()) return std::nullopt;
  v1::CoordinatorToShard next = std::move(waiting_.front());
  waiting_.pop_front();
  working_ = KindOf(next);
  return next;
}

}  // namespace kaon::shard
