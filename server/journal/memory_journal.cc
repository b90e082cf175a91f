#include "server/journal/memory_journal.h"

#include <glog/logging.h>

#include <utility>

namespace kaon::journal {

MemoryJournal::MemoryJournal(IncarnationMarker* marker) : marker_(marker) {}

void MemoryJournal::Append(Record record, std::function<void()> done) {
  if (std::holds_alternative<PromiseRecord>(record) && marker_ != nullptr) {
    const absl::Status status = marker_->Write();
    // Without the marker, a restarted shard could vote twice (protocol.md 2.1 rule 5).
    CHECK(status.ok()) << status;
  }
  if (auto* decision = std::get_if<DecisionRecord>(&record)) {
    history_.Add(std::move(decision->record));
  }
  done();
}

// Nothing outlives the process, so gradients are not copied.
void MemoryJournal::AppendGradient(const GradientSlice& /*slice*/) {}

v1::JournalStatus MemoryJournal::Status() const { return v1::JournalStatus(); }

absl::StatusOr<std::vector<v1::StepRecord>> MemoryJournal::History(uint64_t from_position,
                                                                   uint32_t limit) {
  return history_.Read(from_position, limit);
}

}  // namespace kaon::journal
