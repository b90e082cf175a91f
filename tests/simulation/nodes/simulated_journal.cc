#include "tests/simulation/nodes/simulated_journal.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "server/journal/entry_codec.h"

namespace kaon::simulation {

namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(200);

journal::Entry EntryOf(journal::Record record) {
  return std::visit([](auto&& value) -> journal::Entry { return std::move(value); },
                    std::move(record));
}

}  // namespace

SimulatedJournal::SimulatedJournal(World& world, std::unique_ptr<journal::History> history,
                                   std::unique_ptr<journal::JournalLog> log, OnFailed on_failed)
    : world_(world),
      history_(std::move(history)),
      log_(std::move(log)),
      on_failed_(std::move(on_failed)) {}

SimulatedJournal::~SimulatedJournal() = default;

void SimulatedJournal::After(absl::Duration delay, std::function<void()> event) {
  world_.queue().After(delay, [alive = std::weak_ptr<bool>(alive_), event = std::move(event)] {
    if (!alive.expired()) event();
  });
}

void SimulatedJournal::Append(journal::Record record, std::function<void()> done) {
  if (const auto* decision = std::get_if<journal::DecisionRecord>(&record)) {
    history_->Add(decision->record);
  }
  queue_.push_back({EntryOf(std::move(record)), std::move(done), std::nullopt});
  Wake();
}

void SimulatedJournal::AppendGradient(const journal::GradientSlice& slice) {
  if (log_ == nullptr) return;
  // Its checksum is that of the values now, as in DiskJournal.
  queue_.push_back({slice, nullptr, journal::DescribeGradient(slice)});
  Wake();
}

void SimulatedJournal::WithdrawGradients() {
  auto from = queue_.end();
  while (from != queue_.begin() &&
         !std::holds_alternative<journal::PrepareRecord>(std::prev(from)->entry)) {
    --from;
  }
  const auto is_gradient = [](const Item& item) {
    return std::holds_alternative<journal::GradientSlice>(item.entry);
  };
  queue_.erase(std::remove_if(from, queue_.end(), is_gradient), queue_.end());
}

absl::StatusOr<std::vector<v1::StepRecord>> SimulatedJournal::History(uint64_t from_position,
                                                                      uint32_t limit) {
  return history_->Read(from_position, limit);
}

void SimulatedJournal::Truncate(uint64_t position) {
  if (log_ == nullptr) return;
  const uint64_t bytes = log_->bytes();
  const absl::Status status = log_->Truncate(position);
  world_.result().truncations += log_->bytes() < bytes;
  // A full disk leaves it for the next time.
  if (status.ok() || absl::IsResourceExhausted(status)) return;
  After(absl::ZeroDuration(), [this, status] { on_failed_(status); });
}

uint64_t SimulatedJournal::appended_bytes() const {
  return log_ == nullptr ? 0 : log_->appended_bytes();
}

v1::JournalStatus SimulatedJournal::Status() const { return {}; }

void SimulatedJournal::Wake() {
  if (busy_) return;
  busy_ = true;
  // Runs later, because the caller is in the middle of an event.
  After(world_.Chance(0.5) ? absl::ZeroDuration()
                           : world_.Between(absl::Microseconds(50), absl::Milliseconds(10)),
        [this] { WriteQueued(); });
}

void SimulatedJournal::WriteQueued() {
  busy_ = false;
  // Between two writes anything may happen.
  const bool all = world_.Chance(0.7);
  while (!queue_.empty()) {
    if (!WriteOne(queue_.front())) {
      busy_ = true;
      // Data written before the disk was full can still be synced.
      if (full_ && written_.empty()) After(kRetry, [this] { WriteQueued(); });
      if (full_ && !written_.empty()) BeginSync();
      return;
    }
    if (queue_.front().done != nullptr) written_.push_back(std::move(queue_.front().done));
    queue_.pop_front();
    if (!all && world_.Chance(0.5)) break;
  }
  if (!queue_.empty()) return Wake();
  BeginSync();
}

bool SimulatedJournal::WriteOne(const Item& item) {
  full_ = false;
  if (log_ == nullptr) return true;
  const absl::Status status =
      log_->Append(item.entry, item.described.has_value() ? &*item.described : nullptr);
  if (status.ok()) return true;
  full_ = absl::IsResourceExhausted(status);
  // Later: this object does not outlive the process.
  if (!full_) After(absl::ZeroDuration(), [this, status] { on_failed_(status); });
  return false;
}

void SimulatedJournal::BeginSync() {
  if (written_.empty()) return;
  busy_ = true;
  // A device may have everything long before it reports that.
  bool synced = world_.Chance(0.5);
  if (synced && log_ != nullptr) {
    const absl::Status status = log_->Sync();
    if (!status.ok()) return After(absl::ZeroDuration(), [this, status] { on_failed_(status); });
  }
  After(world_.Between(absl::Microseconds(50), absl::Milliseconds(20)),
        [this, synced] { EndSync(synced); });
}

void SimulatedJournal::EndSync(bool synced) {
  if (!synced && log_ != nullptr) {
    if (const absl::Status status = log_->Sync(); !status.ok()) return on_failed_(status);
  }
  busy_ = false;
  const std::weak_ptr<bool> alive = alive_;
  for (const auto& done : std::exchange(written_, {})) {
    done();
    if (alive.expired()) return;
  }
  if (!queue_.empty()) Wake();
}

}  // namespace kaon::simulation
