// Durability mode `journal`: one thread writes all appends into a JournalLog. An append is done
// once it is synced; entries queued during a sync share the next one. While the disk is full, the
// queue waits and the thread retries. Any other failure ends the process (protocol.md section 3).
// The shard's composition root owns it. One thread appends and withdraws; any thread may call the
// rest. The queue is bounded by its sources, like StepLoop's: a step waits for its PREPARE, and
// gradients stay in the caller's memory.
#ifndef KAON_SERVER_JOURNAL_DISK_JOURNAL_H_
#define KAON_SERVER_JOURNAL_DISK_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "server/disk/disk.h"
#include "server/journal/frame.h"
#include "server/journal/history.h"
#include "server/journal/journal.h"
#include "server/journal/journal_log.h"
#include "server/journal/record.h"

namespace kaon::journal {

class DiskJournal : public Journal {
 public:
  struct Options {
    // The journal sets the history itself.
    JournalLog::Options log;
    // Interval between retries while the disk is full.
    absl::Duration retry_delay = absl::Milliseconds(200);
    // Maximum delay of a decision: it becomes durable with the next vote (protocol.md 2.1 rule 5),
    // or after this time without any append.
    absl::Duration idle_delay = absl::Seconds(1);
    // Called for each write that finds the disk full, with its error, and with OK once one succeeds
    // or none waits for room any more. Runs on the journal's thread; must not block.
    std::function<void(const absl::Status& status)> on_room;
    // Called with true before each write of a gradient, and with false after it, also if the write
    // failed. Runs on the journal's thread; must not block.
    std::function<void(bool writing)> on_gradient_write;
    // Ends the process. Tests replace it; the journal does nothing more once it returns. Runs on
    // the journal's thread.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // Opens the journal in `directory`, which must outlive the result. Reads its entries back through
  // `visit`. Returns the errors of JournalLog::Open.
  static absl::StatusOr<std::unique_ptr<DiskJournal>> Open(disk::Directory& directory,
                                                           const Options& options,
                                                           const JournalLog::Visitor& visit);
  // Calls Stop.
  ~DiskJournal() override;

  // Makes everything appended durable, unless the disk is full, and joins the thread. No `done`
  // runs afterwards, and later appends do nothing. Idempotent; for one thread.
  void Stop();

  void Append(Record record, std::function<void()> done) override;
  void AppendGradient(const GradientSlice& slice) override;
  void WithdrawGradients() override;
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  // Truncates later, on the journal's thread. If the disk is full, the thread retries.
  void Truncate(uint64_t position) override;
  uint64_t appended_bytes() const override;
  v1::JournalStatus Status() const override;
  // Returns what Open found.
  const JournalLog::Found& found() const { return found_; }

 private:
  struct Item {
    Entry entry;
    // Null for gradients.
    std::function<void()> done;
    // Set for gradients.
    std::optional<FrameHeader> described;
  };

  explicit DiskJournal(const Options& options);

  void Enqueue(Item item);
  // Erases queued gradients after the newest PREPARE. Returns true if one of them is being written
  // and stays.
  bool EraseGradientsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // Reports the result of a write to on_room.
  void NoteRoom(const absl::Status& written);
  // These release the lock while they write.
  void WriteFrontLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitForRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing waits for room any more. The next write tells whether the disk is still full.
  void ForgetFullDiskLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SyncLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TruncateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if a vote or a promise waits for a sync, and no queued entry could share it.
  bool SyncIsDueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  journal::History history_;
  // Constant after Open.
  v1::JournalStatus opened_;
  JournalLog::Found found_;

  // Only the thread uses these, once it runs.
  std::unique_ptr<JournalLog> log_;
  bool full_ = false;

  mutable Mutex mu_;
  // Signaled when an entry is queued or the journal stops.
  CondVar wake_;
  // A list, because the entry that is being written must not move.
  std::list<Item> queue_ ABSL_GUARDED_BY(mu_);
  // The front of queue_ is being written, without the lock.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // Signaled when a write has ended.
  CondVar write_ended_;
  // Completions of entries that are written and not synced.
  std::vector<std::function<void()>> written_ ABSL_GUARDED_BY(mu_);
  // One of them is a vote or a promise.
  bool awaited_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Nothing is written any more.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t appended_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Position to truncate to; 0 if there is nothing to remove.
  uint64_t truncate_to_ ABSL_GUARDED_BY(mu_) = 0;
  // Time of the next truncation: the disk was too full even to make room.
  absl::Time truncate_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string read_only_reason_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_DISK_JOURNAL_H_
