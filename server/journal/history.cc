#include "server/journal/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::journal {

namespace {

void LeaveOutRegistration(v1::StepPlan& plan) {
  if (plan.has_registration()) plan.mutable_registration()->Clear();
  if (plan.has_restore()) plan.mutable_restore()->clear_registration();
  if (plan.has_rollback()) plan.mutable_rollback()->mutable_target()->clear_registration();
}

}  // namespace

void History::Add(v1::StepRecord record) {
  const uint64_t kept = record.plan().has_rollback() ? record.plan().rollback().target().position()
                                                     : record.plan().position() - 1;
  LeaveOutRegistration(*record.mutable_plan());
  const size_t bytes = record.ByteSizeLong();
  MutexLock lock(mu_);
  // Rolled-back records are no longer part of the job's history.
  while (!records_.empty() && records_.back().record.plan().position() > kept) {
    bytes_ -= records_.back().bytes;
    records_.pop_back();
  }
  records_.push_back({std::move(record), bytes});
  bytes_ += bytes;
  while (records_.size() > kMaxHistory || (bytes_ > kMaxHistoryBytes && records_.size() > 1)) {
    bytes_ -= records_.front().bytes;
    records_.pop_front();
  }
}

absl::StatusOr<std::vector<v1::StepRecord>> History::Read(uint64_t from_position, uint32_t limit) {
  MutexLock lock(mu_);
  const uint64_t oldest = records_.empty() ? 1 : records_.front().record.plan().position();
  const uint64_t newest = records_.empty() ? 0 : records_.back().record.plan().position();
  // Records that were dropped since the caller looked are no error.
  const uint64_t from = std::max(from_position, oldest);
  if (from_position > newest) {
    return absl::OutOfRangeError(absl::StrCat("history from position ", from,
                                              " asked for, kept are ", oldest, " .. ", newest));
  }
  const auto begin = std::lower_bound(records_.begin(), records_.end(), from,
                                      [](const Kept& kept, uint64_t position) {
                                        return kept.record.plan().position() < position;
                                      });
  std::vector<v1::StepRecord> records;
  for (auto kept = begin; kept != records_.end() && records.size() < limit; ++kept) {
    records.push_back(kept->record);
  }
  return records;
}

std::vector<v1::StepRecord> History::UpTo(uint64_t position) const {
  MutexLock lock(mu_);
  std::vector<v1::StepRecord> records;
  for (const Kept& kept : records_) {
    if (kept.record.plan().position() > position) break;
    records.push_back(kept.record);
  }
  return records;
}

}  // namespace kaon::journal
