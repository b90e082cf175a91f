// Durability mode `interval(K)`. A journal on disk gets the entries that define a job:
// registration, initial weights, restore, rollback, promises. Train steps and changes of groups are
// not written. A vote for one of these waits until the snapshots exist that a rollback would need
// (interval_schedule.h).
// The shard's composition root owns it. One thread appends and withdraws; any thread may call the
// rest. Waiting completions are bounded, because a step waits for its votes.
#ifndef KAON_SERVER_JOURNAL_INTERVAL_JOURNAL_H_
#define KAON_SERVER_JOURNAL_INTERVAL_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/journal/history.h"
#include "server/journal/interval_schedule.h"
#include "server/journal/journal.h"
#include "server/journal/record.h"

namespace kaon::journal {

class IntervalJournal : public Journal {
 public:
  // State of the shard when it starts.
  struct Start {
    uint64_t timeline = 0;
    uint64_t applied_step = 0;
    bool weights_loaded = false;
  };

  // Takes ownership of `disk`. History also returns the records that `disk` read back.
  IntervalJournal(std::unique_ptr<Journal> disk, const IntervalSchedule& schedule,
                  const Start& start);

  // Implement Journal. A decision at a point of the schedule is written, although its vote is not.
  // So the log tells the entries before a snapshot from those after it.
  void Append(Record record, std::function<void()> done) override;
  void AppendGradient(const GradientSlice& slice) override;
  void WithdrawGradients() override { disk_->WithdrawGradients(); }
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  void Truncate(uint64_t position) override { disk_->Truncate(position); }
  uint64_t appended_bytes() const override { return disk_->appended_bytes(); }
  v1::JournalStatus Status() const override { return disk_->Status(); }

  // Reports that the snapshot of `step` is durable.
  void OnSnapshot(uint64_t timeline, uint64_t step);

 private:
  // A completion that waits for its turn and for its condition.
  struct Pending {
    std::function<void()> done;
    // The entry is on disk, or need not be written.
    bool written = false;
    // Step of the vote: the train step itself, or the step before a change of groups.
    std::optional<uint64_t> vote;
  };

  // Returns whether a restart must find the entry.
  bool IsDurable(const v1::StepPlan& plan) const;
  void AppendToDisk(Record record, std::function<void()> done);
  void AppendVolatile(std::optional<uint64_t> vote, std::function<void()> done);
  // Updates the shard's state from a decision.
  void Note(const v1::StepRecord& record);
  bool IsCompleteLocked(const Pending& pending) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the completions whose turn has come, without the lock.
  void Complete();

  const IntervalSchedule schedule_;
  journal::History history_;

  // Used by the appending thread only.
  uint64_t applied_step_;
  bool weights_loaded_;

  Mutex mu_;
  uint64_t timeline_ ABSL_GUARDED_BY(mu_);
  // Step of the newest snapshot of the timeline.
  std::optional<uint64_t> durable_ ABSL_GUARDED_BY(mu_);
  // In order of appends; first_pending_ is the number of the first.
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mu_);
  uint64_t first_pending_ ABSL_GUARDED_BY(mu_) = 0;
  // A thread is running completions, and will run new ones too.
  bool completing_ ABSL_GUARDED_BY(mu_) = false;

  // Declared last, so that it is destroyed first: its thread completes into the members above.
  const std::unique_ptr<Journal> disk_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_INTERVAL_JOURNAL_H_
