#include "server/coordinator/machine/checkpoint_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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
  Part& part = parts_[shard];
  moved_ = moved_ || report.written_bytes() > part.written_bytes ||
           report.total_bytes() > part.total_bytes || (report.has_part() && Lacks(shard));
  part.written_bytes = std::max(part.written_bytes, report.written_bytes());
  part.total_bytes = std::max(part.total_bytes, report.total_bytes());
  if (report.has_part() && Lacks(shard)) part.part = report.part();
  return absl::OkStatus();
}

absl::Status CheckpointRun::Tick(absl::Time now, absl::Duration patience) {
  if (std::exchange(moved_, false)) moved_at_ = now;
  if (handed_out_ || now - moved_at_ < patience) return absl::OkStatus();
  std::vector<std::string> late;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].part.has_value()) continue;
    late.push_back(absl::StrCat("shard ", i, " has written ", parts_[i].written_bytes, " of ",
                                parts_[i].total_bytes, " bytes"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("checkpoint ", facts_.id, " has come no further for ",
                   absl::FormatDuration(now - moved_at_), ": ", absl::StrJoin(late, ", ")));
}

std::optional<std::vector<v1::CheckpointPart>> CheckpointRun::TakeParts() {
  if (handed_out_) return std::nullopt;
  std::vector<v1::CheckpointPart> parts;
  for (const Part& part : parts_) {
    if (!part.part.has_value()) return std::nullopt;
    parts.push_back(*part.part);
  }
  handed_out_ = true;
  return parts;
}

std::string CheckpointRun::Progress() const {
  const auto there = std::count_if(parts_.begin(), parts_.end(),
                                   [](const Part& part) { return part.part.has_value(); });
  return absl::StrCat(there, " of ", parts_.size(), " parts of checkpoint ", facts_.id);
}

}  // namespace kaon::coordinator
