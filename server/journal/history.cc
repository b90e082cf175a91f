#include "server/journal/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::journal {

void History::Add(v1::StepRecord record) {
  MutexLock lock(mu_);
  const uint64_t kept = record.plan().has_rollback() ? record.plan().rollback().target().position()
                                                     : record.plan().position() - 1;
  // What was rolled back is no part of the job's history any more.
  while (!records_.empty() && records_.back().plan().position() > kept) records_.pop_back();
  records_.push_back(std::move(record));
  if (records_.size() > kMaxHistory) records_.pop_front();
}

absl::StatusOr<std::vector<v1::StepRecord>> History::Read(uint64_t from_position, uint32_t limit) {
  MutexLock lock(mu_);
  const uint64_t oldest = records_.empty() ? 1 : records_.front().plan().position();
  const uint64_t newest = records_.empty() ? 0 : records_.back().plan().position();
  // Records that were dropped since the caller looked are no error.
  const uint64_t from = std::max(from_position, oldest);
  if (from_position > newest) {
    return absl::OutOfRangeError(absl::StrCat("history from position ", from,
                                              " asked for, kept are ", oldest, " .. ", newest));
  }
  const auto begin = std::lower_bound(records_.begin(), records_.end(), from,
                                      [](const v1::StepRecord& record, uint64_t position) {
                                        return record.plan().position() < position;
                                      });
  const std::ptrdiff_t available = records_.end() - begin;
  return std::vector<v1::StepRecord>(begin, begin + std::min<std::ptrdiff_t>(available, limit));
}

}  // namespace kaon::journal
