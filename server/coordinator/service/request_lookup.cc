#include "server/coordinator/service/request_lookup.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kaon::coordinator {

namespace {

// Returns 0 for an entry that no request asked for.
uint64_t RequestIdOf(const v1::StepPlan& plan) {
  if (plan.has_group_change()) return plan.group_change().request_id();
  if (plan.has_job_deletion()) return plan.job_deletion().request_id();
  return plan.has_restore() ? plan.restore().request_id() : 0;
}

}  // namespace

void RequestLookup::Start(const Query& query, Read read, Done done) {
  std::shared_ptr<RequestLookup> lookup(new RequestLookup(query, std::move(read), std::move(done)));
  lookup->Ask(0, query.newest);
}

void RequestLookup::Ask(int shard, uint64_t position) {
  if (position <= query_.after || entries_ >= kMaxEntries) {
    return done_(absl::NotFoundError(absl::StrCat("no entry after position ", query_.after,
                                                  " came of request ", query_.request_id)));
  }
  // Decided records are equal on every shard, so skip a shard that is unreachable or behind.
  if (shard >= query_.num_shards && forgotten_ && !away_) {
    return done_(absl::NotFoundError(
        absl::StrCat("the record of position ", position, " is not kept any more")));
  }
  if (shard >= query_.num_shards) {
    return done_(absl::UnavailableError(
        absl::StrCat("no shard could be asked for the record of position ", position)));
  }
  read_(shard, position, [self = shared_from_this(), shard, position](const History& history) {
    self->OnHistory(shard, position, history);
  });
}

void RequestLookup::OnHistory(int shard, uint64_t position, const History& history) {
  if (!history.ok() || history->records().empty()) {
    away_ = true;
    return Ask(shard + 1, position);
  }
  const v1::StepRecord& record = history->records(0);
  if (record.plan().position() != position) {
    // The answer is the oldest record that this shard keeps. Another shard may have restarted
    // longer ago and keep more.
    forgotten_ = true;
    return Ask(shard + 1, position);
  }
  if (RequestIdOf(record.plan()) == query_.request_id) return done_(record);
  ++entries_;
  forgotten_ = false;
  away_ = false;
  Ask(shard, record.plan().config_revision());
}

}  // namespace kaon::coordinator
