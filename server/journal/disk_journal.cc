#include "server/journal/disk_journal.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "kernels/steady_clock.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/journal/entry_codec.h"

namespace kaon::journal {

namespace {

// A decision may wait: from the votes a coordinator would reach the same one.
bool IsAwaited(const Entry& entry) {
  return std::holds_alternative<PromiseRecord>(entry) ||
         std::holds_alternative<PrepareRecord>(entry);
}

bool IsGradient(const Entry& entry) { return std::holds_alternative<GradientSlice>(entry); }

}  // namespace

DiskJournal::DiskJournal(const Options& options) : options_(options) {}

absl::StatusOr<std::unique_ptr<DiskJournal>> DiskJournal::Open(disk::Directory& directory,
                                                               const Options& options,
                                                               const JournalLog::Visitor& visit) {
  const absl::Time start = SteadyNow();
  std::unique_ptr<DiskJournal> journal(new DiskJournal(options));
  JournalLog::Options log = options.log;
  log.history = &journal->history_;
  KAON_ASSIGN_OR_RETURN(journal->log_, JournalLog::Open(directory, log, visit));
  journal->found_ = journal->log_->found();
  journal->opened_.set_recovered_entries(journal->found_.entries);
  journal->opened_.set_torn_tail(journal->found_.torn_tail);
  journal->opened_.set_recovery_seconds(absl::ToDoubleSeconds(SteadyNow() - start));
  {
    MutexLock lock(journal->mu_);
    journal->bytes_ = journal->log_->bytes();
    journal->appended_bytes_ = journal->log_->appended_bytes();
  }
  journal->thread_ = std::thread([raw = journal.get()] { raw->Run(); });
  return journal;
}

DiskJournal::~DiskJournal() { Stop(); }

void DiskJournal::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void DiskJournal::Append(Record record, std::function<void()> done) {
  if (const auto* decision = std::get_if<DecisionRecord>(&record)) {
    history_.Add(decision->record);
  }
  Enqueue({std::visit([](auto& one) { return Entry(std::move(one)); }, record), std::move(done),
           std::nullopt});
}

void DiskJournal::AppendGradient(const GradientSlice& slice) {
  // Compute the checksums here, so that the thread writes one piece while the caller reads the
  // next. One thread for both would take a quarter longer than the disk alone.
  constexpr size_t kValues = kMaxGradientBytes / sizeof(float);
  GradientSlice piece = slice;
  do {
    piece.values = slice.values.subspan(piece.offset - slice.offset, kValues);
    Enqueue({piece, nullptr, DescribeGradient(piece)});
    piece.offset += piece.values.size();
  } while (piece.offset - slice.offset < slice.values.size());
}

void DiskJournal::WithdrawGradients() {
  MutexLock lock(mu_);
  // After a write that finds the disk full, the entry is still in the queue.
  while (EraseGradientsLocked()) write_ended_.Wait(mu_);
}

bool DiskJournal::EraseGradientsLocked() {
  for (auto next = queue_.end(); next != queue_.begin();) {
    const auto item = std::prev(next);
    // A PREPARE refers to everything before it.
    if (std::holds_alternative<PrepareRecord>(item->entry)) return false;
    const bool gradient = IsGradient(item->entry);
    if (gradient && writing_ && item == queue_.begin()) return true;
    next = gradient ? queue_.erase(item) : item;
  }
  return false;
}

void DiskJournal::Enqueue(Item item) {
  MutexLock lock(mu_);
  if (stopping_ || ended_) return;
  queue_.push_back(std::move(item));
  wake_.NotifyAll();
}

absl::StatusOr<std::vector<v1::StepRecord>> DiskJournal::History(uint64_t from_position,
                                                                 uint32_t limit) {
  return history_.Read(from_position, limit);
}

void DiskJournal::Truncate(uint64_t position) {
  MutexLock lock(mu_);
  truncate_to_ = std::max(truncate_to_, position);
  wake_.NotifyAll();
}

uint64_t DiskJournal::appended_bytes() const {
  MutexLock lock(mu_);
  return appended_bytes_;
}

v1::JournalStatus DiskJournal::Status() const {
  v1::JournalStatus status = opened_;
  MutexLock lock(mu_);
  status.set_bytes(bytes_);
  status.set_read_only_reason(read_only_reason_);
  return status;
}

void DiskJournal::Run() {
  MutexLock lock(mu_);
  while (!ended_) {
    if (SyncIsDueLocked()) {
      SyncLocked();
    } else if (truncate_to_ > 0 && SteadyNow() >= truncate_at_) {
      // Also while the disk is full, because truncation makes room.
      TruncateLocked();
    } else if (!queue_.empty()) {
      WriteFrontLocked();
    } else if (stopping_) {
      if (!written_.empty()) SyncLocked();
      ended_ = true;
    } else if (full_) {
      ForgetFullDiskLocked();
    } else if (written_.empty() && truncate_to_ > 0) {
      wake_.WaitFor(mu_, truncate_at_ - SteadyNow());
    } else if (written_.empty()) {
      wake_.Wait(mu_);
    } else if (!wake_.WaitFor(mu_, options_.idle_delay) && queue_.empty()) {
      SyncLocked();
    }
  }
}

bool DiskJournal::SyncIsDueLocked() const {
  // Gradients of a later step must not delay a vote.
  return awaited_ && (queue_.empty() || IsGradient(queue_.front().entry));
}

void DiskJournal::NoteRoom(const absl::Status& written) {
  const bool was_full = std::exchange(full_, absl::IsResourceExhausted(written));
  if (options_.on_room && (was_full || full_)) options_.on_room(written);
}

void DiskJournal::WriteFrontLocked() {
  const Entry& entry = queue_.front().entry;
  const std::optional<FrameHeader>& described = queue_.front().described;
  const bool told = options_.on_gradient_write && IsGradient(entry);
  writing_ = true;
  mu_.Unlock();
  if (told) options_.on_gradient_write(true);
  const absl::Status status = log_->Append(entry, described ? &*described : nullptr);
  if (told) options_.on_gradient_write(false);
  NoteRoom(status);
  mu_.Lock();
  writing_ = false;
  write_ended_.NotifyAll();
  if (status.ok()) {
    read_only_reason_.clear();
    bytes_ = log_->bytes();
    appended_bytes_ = log_->appended_bytes();
    awaited_ |= IsAwaited(entry);
    if (queue_.front().done) written_.push_back(std::move(queue_.front().done));
    queue_.pop_front();
  } else if (absl::IsResourceExhausted(status)) {
    read_only_reason_ = std::string(status.message());
    WaitForRoomLocked();
  } else {
    FailLocked(status);
  }
}

void DiskJournal::ForgetFullDiskLocked() {
  read_only_reason_.clear();
  mu_.Unlock();
  NoteRoom(absl::OkStatus());
  mu_.Lock();
}

void DiskJournal::WaitForRoomLocked() {
  // Entries that are already written need not wait.
  if (awaited_) SyncLocked();
  const absl::Time retry_at = SteadyNow() + options_.retry_delay;
  while (!stopping_ && !ended_ && SteadyNow() < retry_at) {
    wake_.WaitFor(mu_, retry_at - SteadyNow());
  }
  if (!stopping_) return;
  // The queued votes were never sent.
  LOG(ERROR) << "journal: " << queue_.size() << " entries not written: " << read_only_reason_;
  queue_.clear();
}

void DiskJournal::SyncLocked() {
  const std::vector<std::function<void()>> done = std::exchange(written_, {});
  awaited_ = false;
  mu_.Unlock();
  const absl::Status status = log_->Sync();
  if (status.ok()) {
    PassFailpoint(Failpoint::journal_entries_durable);
    for (const std::function<void()>& one : done) one();
  }
  mu_.Lock();
  if (!status.ok()) FailLocked(status);
}

void DiskJournal::TruncateLocked() {
  const uint64_t position = std::exchange(truncate_to_, 0);
  mu_.Unlock();
  const absl::Status status = log_->Truncate(position);
  mu_.Lock();
  bytes_ = log_->bytes();
  if (absl::IsResourceExhausted(status)) {
    LOG(WARNING) << "journal: not truncated yet: " << status;
    truncate_to_ = std::max(truncate_to_, position);
    truncate_at_ = SteadyNow() + options_.retry_delay;
  } else if (!status.ok()) {
    FailLocked(status);
  }
}

void DiskJournal::FailLocked(const absl::Status& status) {
  ended_ = true;
  mu_.Unlock();
  if (options_.on_failed) {
    options_.on_failed(status);
  } else {
    // It is unknown now whether a vote is on disk; a restart finds out.
    LOG(FATAL) << "journal: " << status;
  }
  mu_.Lock();
}

}  // namespace kaon::journal
