#include "server/coordinator/checkpoint_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::coordinator {

CheckpointRun::CheckpointRun(checkpoint::CheckpointFacts facts, uint64_t attempt, int num_shards,
                             std::optional<CallId> call)
    : facts_(std::move(facts)),
      attempt_(attempt),
      call_(call),
      is_periodic_(!call),
      parts_(num_shards) {}

v1::TakeCheckpoint CheckpointRun::Ask() const {
  v1::TakeCheckpoint ask;
  ask.set_id(facts_.id);
  ask.set_position(facts_.last_record.plan().position());
  ask.set_attempt(attempt_);
  return ask;
}

absl::Status CheckpointRun::OnReport(int shard, const v1::CheckpointReport& report) {
  if (report.id() != facts_.id || report.attempt() != attempt_) return absl::OkStatus();
  if (report.error_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(report.error_code()),
                        absl::StrCat("shard ", shard, ": ", report.error()));
  }
  if (report.has_part() && Lacks(shard)) parts_[shard] = report.part();
  return absl::OkStatus();
}

std::optional<std::vector<v1::CheckpointPart>> CheckpointRun::TakeParts() {
  if (handed_out_) return std::nullopt;
  std::vector<v1::CheckpointPart> parts;
  for (const std::optional<v1::CheckpointPart>& part : parts_) {
    if (!part.has_value()) return std::nullopt;
    parts.push_back(*part);
  }
  handed_out_ = true;
  return parts;
}

std::string CheckpointRun::Progress() const {
  const auto there = std::count_if(parts_.begin(), parts_.end(),
                                   [](const auto& part) { return part.has_value(); });
  return absl::StrCat(there, " of ", parts_.size(), " parts of checkpoint ", facts_.id);
}

}  // namespace kaon::coordinator
