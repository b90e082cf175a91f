// The thread of DiskJournal in virtual time. Writes appends at once or a while later, takes time
// for a sync, and runs `done` only after it. A full disk only delays. Drives the production
// JournalLog, or keeps everything in memory (mode `none`). Owned by ShardNode, one per life of its
// process; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_SIMULATED_JOURNAL_H_
#define KAON_TESTS_SIMULATION_NODES_SIMULATED_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/journal/frame.h"
#include "server/journal/history.h"
#include "server/journal/journal.h"
#include "server/journal/journal_log.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class SimulatedJournal : public journal::Journal {
 public:
  // Called when a write or a sync failed for good; the process must end.
  using OnFailed = std::function<void(const absl::Status&)>;

  // `log` is null in mode `none`. `history` is what the log was opened with.
  SimulatedJournal(World& world, std::unique_ptr<journal::History> history,
                   std::unique_ptr<journal::JournalLog> log, OnFailed on_failed);
  ~SimulatedJournal() override;

  void Append(journal::Record record, std::function<void()> done) override;
  void AppendGradient(const journal::GradientSlice& slice) override;
  void WithdrawGradients() override;
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  // Truncates the log immediately.
  void Truncate(uint64_t position) override;
  uint64_t appended_bytes() const override;
  v1::JournalStatus Status() const override;

 private:
  struct Item {
    journal::Entry entry;
    // Null for slices.
    std::function<void()> done;
    // Set for slices.
    std::optional<journal::FrameHeader> described;
  };

  // Runs `event` unless the process has died.
  void After(absl::Duration delay, std::function<void()> event);
  void Wake();
  void WriteQueued();
  // Returns false if the write must be retried later.
  bool WriteOne(const Item& item);
  void BeginSync();
  void EndSync(bool synced);

  World& world_;
  // The log moves the records that a truncation keeps out of it.
  const std::unique_ptr<journal::History> history_;
  const std::unique_ptr<journal::JournalLog> log_;
  const OnFailed on_failed_;
  // Events hold a weak reference, so they die with the process.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // Entries that are not written.
  std::deque<Item> queue_;
  // Callbacks of entries that are written but not synced.
  std::vector<std::function<void()>> written_;
  // A write, a sync or a retry is in progress.
  bool busy_ = false;
  bool full_ = false;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_SIMULATED_JOURNAL_H_
