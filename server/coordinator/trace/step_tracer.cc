#include "server/coordinator/trace/step_tracer.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>

namespace kaon::coordinator {

namespace {

// Steps that may be begun and not exported: no job is that far ahead of its traces.
constexpr size_t kMostParents = 1000;
// A request stays far below the 4 MiB that collectors take.
constexpr size_t kSpansOfRequest = 2000;

}  // namespace

StepTracer::StepTracer(const ClusterQueries& queries, Send send)
    : queries_(queries), send_(std::move(send)), random_(std::random_device()()) {}

void StepTracer::NoteParent(const v1::BeginStepRequest& request) {
  std::optional<monitor::TraceContext> context = monitor::ParseTraceparent(request.traceparent());
  if (!context.has_value()) return;
  MutexLock lock(mu_);
  const auto at = parents_.find(request.step());
  const bool is_lower =
      at == parents_.end() || at->second.job != request.job() || request.rank() <= at->second.rank;
  // Somebody begins steps that never come.
  if (parents_.size() >= kMostParents && at == parents_.end()) parents_.clear();
  if (is_lower) parents_[request.step()] = {request.job(), request.rank(), *std::move(context)};
}

void StepTracer::Look() {
  if (asked_.exchange(true)) return;
  v1::StepHistoryRequest request;
  request.set_limit(kMostSteps);
  request.set_with_phases(true);
  queries_.History(
      request, [self = shared_from_this()](const absl::StatusOr<v1::StepHistoryResponse>& history) {
        // Without a job there is nothing to leave out.
        const bool no_job = absl::IsNotFound(history.status());
        if (history.ok() || no_job) {
          self->Export(history.ok() ? *history : v1::StepHistoryResponse());
        }
        self->asked_ = false;
      });
}

std::vector<const v1::StepRecord*> StepTracer::Choose(const v1::StepHistoryResponse& history,
                                                      Parents& parents) {
  std::vector<const v1::StepRecord*> chosen;
  const auto place_of = [](const v1::StepRecord& record) {
    return Place(record.plan().timeline(), record.plan().position());
  };
  MutexLock lock(mu_);
  const bool is_first = !std::exchange(looked_, true);
  if (history.records().empty()) return chosen;
  const Place newest = place_of(*history.records().rbegin());
  if (is_first) exported_ = newest;
  // Readers may still pull the weights of the newest step, unless it is not so new.
  const bool with_newest = std::exchange(newest_, newest) == newest;
  for (const v1::StepRecord& record : history.records()) {
    const Place place = place_of(record);
    if (place <= exported_ || (place == newest && !with_newest)) continue;
    // Only as many are read: those in between are left out.
    if (chosen.empty() && place.first == exported_.first && place.second > exported_.second + 1) {
      left_out_ += place.second - exported_.second - 1;
      LOG_EVERY_T(WARNING, 60) << left_out_ << " entries have no trace: " << kMostSteps
                               << " a second are exported";
    }
    // The other coordinators export what they decided.
    if (history.decided_unix_millis().contains(record.plan().position())) {
      chosen.push_back(&record);
    }
    exported_ = place;
    const auto parent = parents_.find(record.plan().step().step());
    if (parent == parents_.end()) continue;
    if (parent->second.job == record.plan().job()) parents.insert(*parent);
    parents_.erase(parent);
  }
  return chosen;
}

void StepTracer::Export(const v1::StepHistoryResponse& history) {
  Parents parents;
  std::vector<TraceSpan> spans;
  for (const v1::StepRecord* record : Choose(history, parents)) {
    std::optional<monitor::TraceContext> context;
    const auto parent = parents.find(record->plan().step().step());
    if (parent != parents.end()) context = parent->second.context;
    if (context.has_value() && !context->sampled) continue;
    for (TraceSpan& span :
         SpansOf(*record, history.phases(), context, [this] { return random_(); })) {
      spans.push_back(std::move(span));
    }
    if (spans.size() >= kSpansOfRequest) send_(std::exchange(spans, {}));
  }
  if (!spans.empty()) send_(std::move(spans));
}

}  // namespace kaon::coordinator
