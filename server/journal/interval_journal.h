// Durability mode `interval(K)`: what a job is made of goes to a journal on disk (registration,
// initial weights, restore, rollback, promises), train steps and changes of groups do not; a vote
// for one of those waits until the snapshots are there that a rollback would need
// (interval_schedule.h). Owned by the shard's composition root; appends and withdrawals by one
// thread, everything else by any. What waits is bounded by the step, which waits for its votes.
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
  // Where the shard stands when it starts.
  struct Start {
    uint64_t timeline = 0;
    uint64_t applied_step = 0;
    bool weights_loaded = false;
  };

  // The records that `disk` was read back with are shown too.
  IntervalJournal(std::unique_ptr<Journal> disk, const IntervalSchedule& schedule,
                  const Start& start);

  // As the interface. Of points of the schedule the decision is written, though not its vote: so
  // that the log tells what came before a snapshot from what came after it.
  void Append(Record record, std::function<void()> done) override;
  void AppendGradient(const GradientSlice& slice) override;
  void WithdrawGradients() override { disk_->WithdrawGradients(); }
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  void Truncate(uint64_t position) override { disk_->Truncate(position); }
  uint64_t appended_bytes() const override { return disk_->appended_bytes(); }
  v1::JournalStatus Status() const override { return disk_->Status(); }

  // The snapshot of that step is durable.
  void OnSnapshot(uint64_t timeline, uint64_t step);

 private:
  // A completion that waits for its turn, and for what it says is so.
  struct Pending {
    std::function<void()> done;
    // On disk, or not to be written.
    bool written = false;
    // The train step that is voted for, or that the change comes after.
    std::optional<uint64_t> vote;
  };

  // Whether a restart is to find the entry.
  bool IsDurable(const v1::StepPlan& plan) const;
  void AppendToDisk(Record record, std::function<void()> done);
  void AppendVolatile(std::optional<uint64_t> vote, std::function<void()> done);
  // Keeps account of where the shard stands.
  void Note(const v1::StepRecord& record);
  bool IsCompleteLocked(const Pending& pending) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the completions whose turn it is, without the lock.
  void Complete();

  const IntervalSchedule schedule_;
  journal::History history_;

  // Of the thread that appends.
  uint64_t applied_step_;
  bool weights_loaded_;

  Mutex mu_;
  uint64_t timeline_ ABSL_GUARDED_BY(mu_);
  // Step of the newest snapshot of the timeline.
  std::optional<uint64_t> durable_ ABSL_GUARDED_BY(mu_);
  // In the order of appends; the first has this number.
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mu_);
  uint64_t first_pending_ ABSL_GUARDED_BY(mu_) = 0;
  // Some thread is completing, and goes on.
  bool completing_ ABSL_GUARDED_BY(mu_) = false;

  // Last: its thread completes into what is above.
  const std::unique_ptr<Journal> disk_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_INTERVAL_JOURNAL_H_
