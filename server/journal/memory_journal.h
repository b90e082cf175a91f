// Durability mode `none`: keeps records in memory for the life of the process. The incarnation
// marker is the only file; it tells a restarted shard that its state is lost. The shard's
// composition root owns it. One thread calls Append; any thread may call History.
#ifndef KAON_SERVER_JOURNAL_MEMORY_JOURNAL_H_
#define KAON_SERVER_JOURNAL_MEMORY_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/journal/history.h"
#include "server/journal/incarnation_marker.h"
#include "server/journal/journal.h"

namespace kaon::journal {

class MemoryJournal : public Journal {
 public:
  // `marker` may be null in tests, which keep no directory. Otherwise it must outlive the journal,
  // and it is written before the first promise completes.
  explicit MemoryJournal(IncarnationMarker* marker);

  // Ends the process if the marker cannot be written.
  void Append(Record record, std::function<void()> done) override;
  void AppendGradient(const GradientSlice& slice) override;
  void WithdrawGradients() override {}
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  void Truncate(uint64_t /*position*/) override {}
  uint64_t appended_bytes() const override { return 0; }
  v1::JournalStatus Status() const override;

 private:
  IncarnationMarker* const marker_;
  journal::History history_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_MEMORY_JOURNAL_H_
