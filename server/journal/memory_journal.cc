#include "server/journal/memory_journal.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::journal {

MemoryJournal::MemoryJournal(IncarnationMarker* marker) : marker_(marker) {}

void MemoryJournal::Append(Record record, std::function<void()> done) {
  if (std::holds_alternative<PromiseRecord>(record) && marker_ != nullptr) {
    const absl::Status status = marker_->Write();
    // Without the marker a restart would let this shard vote twice (protocol.md 2.1 rule 5).
    CHECK(status.ok()) << status;
  }
  if (auto* decision = std::get_if<DecisionRecord>(&record)) {
    MutexLock lock(mu_);
    history_.push_back(std::move(decision->record));
    if (history_.size() > kMaxHistory) history_.pop_front();
  }
  done();
}

// Gradients stay where they are: nothing outlives the process.
void MemoryJournal::AppendGradient(const GradientSlice& /*slice*/) {}
void MemoryJournal::Withdraw() {}

v1::JournalStatus MemoryJournal::Status() const { return v1::JournalStatus(); }

absl::StatusOr<std::vector<v1::StepRecord>> MemoryJournal::History(uint64_t from_position,
                                                                   uint32_t limit) {
  MutexLock lock(mu_);
  const uint64_t oldest = history_.empty() ? 1 : history_.front().plan().position();
  const uint64_t newest = history_.empty() ? 0 : history_.back().plan().position();
  // Records that were dropped since the caller looked are no error.
  const uint64_t from = std::max(from_position, oldest);
  if (from_position > newest) {
    return absl::OutOfRangeError(absl::StrCat("history from position ", from,
                                              " asked for, kept are ", oldest, " .. ", newest));
  }
  const uint64_t available = newest + 1 - from;
  const auto begin = history_.begin() + static_cast<std::ptrdiff_t>(from - oldest);
  return std::vector<v1::StepRecord>(
      begin, begin + static_cast<std::ptrdiff_t>(std::min<uint64_t>(available, limit)));
}

}  // namespace kaon::journal
