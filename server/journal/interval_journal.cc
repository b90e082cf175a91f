#include "server/journal/interval_journal.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace kaon::journal {

IntervalJournal::IntervalJournal(std::unique_ptr<Journal> disk, const IntervalSchedule& schedule,
                                 const Start& start)
    : schedule_(schedule),
      applied_step_(start.applied_step),
      weights_loaded_(start.weights_loaded),
      timeline_(start.timeline),
      disk_(std::move(disk)) {
  const absl::StatusOr<std::vector<v1::StepRecord>> read_back = disk_->History(0, kMaxHistory);
  if (!read_back.ok()) return;
  for (const v1::StepRecord& record : *read_back) history_.Add(record);
}

// Rule 5 (protocol.md 2.1): "Promise and timeline are durable in every mode but `none`". So are the
// entries that begin a timeline.
bool IntervalJournal::IsDurable(const v1::StepPlan& plan) const {
  // Before the weights are loaded, no snapshot holds anything.
  return !weights_loaded_ || plan.has_registration() || plan.has_restore() || plan.has_rollback() ||
         plan.has_job_deletion();
}

void IntervalJournal::Append(Record record, std::function<void()> done) {
  if (const auto* prepare = std::get_if<PrepareRecord>(&record)) {
    v1::StepPlan plan;
    // Always parses: this shard serialized it.
    if (!plan.ParseFromString(prepare->prepared.plan()) || IsDurable(plan)) {
      return AppendToDisk(std::move(record), std::move(done));
    }
    return AppendVolatile(plan.has_step() ? plan.step().step() : applied_step_, std::move(done));
  }
  if (const auto* decision = std::get_if<DecisionRecord>(&record)) {
    const bool written = IsDurable(decision->record.plan()) || schedule_.IsPoint(decision->record);
    history_.Add(decision->record);
    Note(decision->record);
    if (!written) return AppendVolatile(std::nullopt, std::move(done));
  }
  AppendToDisk(std::move(record), std::move(done));
}

void IntervalJournal::AppendGradient(const GradientSlice& slice) {
  // Only initial weights are written; later gradients belong to train steps.
  if (!weights_loaded_) disk_->AppendGradient(slice);
}

absl::StatusOr<std::vector<v1::StepRecord>> IntervalJournal::History(uint64_t from_position,
                                                                     uint32_t limit) {
  return history_.Read(from_position, limit);
}

void IntervalJournal::Note(const v1::StepRecord& record) {
  const v1::StepPlan& plan = record.plan();
  const bool applied = record.decision().outcome() == v1::OUTCOME_APPLY;
  if (plan.has_step() && plan.step().kind() == v1::STEP_KIND_TRAIN) {
    applied_step_ = plan.step().step();
  } else if (plan.has_step()) {
    weights_loaded_ = applied;
  } else if (plan.has_restore() || plan.has_rollback()) {
    applied_step_ = plan.has_restore() ? plan.restore().step() : plan.rollback().target().step();
    weights_loaded_ = true;
  } else if (plan.has_job_deletion()) {
    applied_step_ = 0;
    weights_loaded_ = false;
  }
  MutexLock lock(mu_);
  if (plan.timeline() == timeline_) return;
  timeline_ = plan.timeline();
  durable_.reset();
}

void IntervalJournal::AppendToDisk(Record record, std::function<void()> done) {
  uint64_t number = 0;
  {
    MutexLock lock(mu_);
    number = first_pending_ + pending_.size();
    pending_.push_back({std::move(done), false, std::nullopt});
  }
  disk_->Append(std::move(record), [this, number] {
    {
      MutexLock lock(mu_);
      pending_[number - first_pending_].written = true;
    }
    Complete();
  });
}

void IntervalJournal::AppendVolatile(std::optional<uint64_t> vote, std::function<void()> done) {
  {
    MutexLock lock(mu_);
    pending_.push_back({std::move(done), true, vote});
  }
  Complete();
}

void IntervalJournal::OnSnapshot(uint64_t timeline, uint64_t step) {
  {
    MutexLock lock(mu_);
    // A snapshot of an earlier timeline came late.
    if (timeline != timeline_) return;
    durable_ = std::max(durable_.value_or(0), step);
  }
  Complete();
}

bool IntervalJournal::IsCompleteLocked(const Pending& pending) const {
  if (!pending.vote.has_value()) return pending.written;
  return durable_.has_value() && schedule_.MayVote(*pending.vote, *durable_);
}

void IntervalJournal::Complete() {
  MutexLock lock(mu_);
  // One thread completes at a time, to keep the order.
  if (completing_) return;
  completing_ = true;
  while (!pending_.empty() && IsCompleteLocked(pending_.front())) {
    const std::function<void()> done = std::move(pending_.front().done);
    pending_.pop_front();
    ++first_pending_;
    mu_.Unlock();
    done();
    mu_.Lock();
  }
  completing_ = false;
}

}  // namespace kaon::journal
