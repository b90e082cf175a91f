// Durability mode `journal`: appends go through one thread into a JournalLog, and are done once
// they are synced; what is queued while a sync runs shares the next one. A full disk only delays:
// the queue waits and goes on by itself. Any other failure ends the process (protocol.md section
// 3). Owned by the shard's composition root; appends and withdrawals by one thread,
// everything else by any. The queue is bounded by its sources, as StepLoop's is: the step waits for
// its PREPARE, and gradients are borrowed.
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
    // Its history is the journal's own.
    JournalLog::Options log;
    // How often a full disk is tried again.
    absl::Duration retry_delay = absl::Milliseconds(200);
    // Decisions are made durable with the next vote (protocol.md 2.1 rule 5), or after so long
    // without any append.
    absl::Duration idle_delay = absl::Seconds(1);
    // Of each write that finds the disk full, and, OK, of the first one after it that does not.
    // Runs on the journal's thread, and must not block.
    std::function<void(const absl::Status& status)> on_room;
    // Around each write of a gradient: true before it, false after it, done or not. Runs on the
    // journal's thread, and must not block.
    std::function<void(bool writing)> on_gradient_write;
    // Ends the process; tests replace it, and the journal does nothing more once it returns. Runs
    // on the journal's thread.
    std::function<void(const absl::Status& status)> on_failed;
  };

  // Reads back what `directory` holds through `visit`, as JournalLog::Open, which see for codes.
  // `directory` outlives the result.
  static absl::StatusOr<std::unique_ptr<DiskJournal>> Open(disk::Directory& directory,
                                                           const Options& options,
                                                           const JournalLog::Visitor& visit);
  // Stops.
  ~DiskJournal() override;

  // Makes durable what was appended, unless the disk is full, and joins the thread: no `done` runs
  // after it returns, and later appends do nothing. Idempotent; by one thread.
  void Stop();

  void Append(Record record, std::function<void()> done) override;
  void AppendGradient(const GradientSlice& slice) override;
  void WithdrawGradients() override;
  absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                      uint32_t limit) override;
  // Soon, by the journal's thread. A full disk only leaves it for the next time.
  void Truncate(uint64_t position) override;
  uint64_t appended_bytes() const override;
  v1::JournalStatus Status() const override;
  // At Open.
  const JournalLog::Found& found() const { return found_; }

 private:
  struct Item {
    Entry entry;
    // Null for gradients.
    std::function<void()> done;
    // Of a gradient.
    std::optional<FrameHeader> described;
  };

  explicit DiskJournal(const Options& options);

  void Enqueue(Item item);
  // Of gradients after the newest PREPARE; true if one of them is being written, which stays.
  bool EraseGradientsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // Says so by on_room.
  void NoteRoom(const absl::Status& written);
  // Each gives up the lock while it writes.
  void WriteFrontLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitForRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SyncLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TruncateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is written should be synced now: somebody waits, and nothing queued could share the sync.
  bool SyncIsDueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  journal::History history_;
  // Constant once open.
  v1::JournalStatus opened_;
  JournalLog::Found found_;

  // Of the thread, once it runs.
  std::unique_ptr<JournalLog> log_;
  bool full_ = false;

  mutable Mutex mu_;
  // Something is queued, or the journal stops.
  CondVar wake_;
  // A list: the entry that is being written stays where it is.
  std::list<Item> queue_ ABSL_GUARDED_BY(mu_);
  // Its front is being written, without the lock.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // It is not any more.
  CondVar write_ended_;
  // Completions of what is written and not synced.
  std::vector<std::function<void()>> written_ ABSL_GUARDED_BY(mu_);
  // One of them is a vote or a promise.
  bool awaited_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Nothing is written any more.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t appended_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Up to which position; 0 if there is nothing to remove.
  uint64_t truncate_to_ ABSL_GUARDED_BY(mu_) = 0;
  // Not before: the disk was too full even for what makes room.
  absl::Time truncate_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string read_only_reason_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_DISK_JOURNAL_H_
