#include "server/coordinator/trace/step_tracer.h"

#include <glog/logging.h>

#include <optional>

namespace kaon::coordinator {

namespace {

// A step that nobody has begun for so many others is over.
constexpr size_t kMostParents = 1000;

}  // namespace

StepTracer::StepTracer(const ClusterQueries& queries, Send send)
    : queries_(queries), send_(std::move(send)), random_(std::random_device()()) {}

void StepTracer::NoteParent(uint64_t step, uint32_t rank, const std::string& traceparent) {
  std::optional<TraceContext> context = ParseTraceparent(traceparent);
  if (!context.has_value()) return;
  MutexLock lock(mu_);
  const auto [at, is_new] = parents_.try_emplace(step, Parent{rank, *context});
  if (!is_new && rank <= at->second.rank) at->second = {rank, *std::move(context)};
  if (parents_.size() > kMostParents) parents_.erase(parents_.begin());
}

void StepTracer::Look() {
  if (asked_.exchange(true)) return;
  v1::StepHistoryRequest request;
  request.set_limit(kMostSteps);
  request.set_with_phases(true);
  queries_.History(
      request, [self = shared_from_this()](const absl::StatusOr<v1::StepHistoryResponse>& history) {
        if (history.ok()) self->Export(*history);
        self->asked_ = false;
      });
}

void StepTracer::Export(const v1::StepHistoryResponse& history) {
  if (history.records().empty()) return;
  const uint64_t newest = history.records().rbegin()->plan().position();
  std::vector<TraceSpan> spans;
  {
    MutexLock lock(mu_);
    // Readers may still pull the weights of the newest step, unless it is not so new.
    const uint64_t last = looked_ && newest == newest_ ? newest : newest - 1;
    if (!looked_ || newest < newest_) exported_ = newest;
    looked_ = true;
    newest_ = newest;
    const uint64_t first = history.records(0).plan().position();
    if (first > exported_ + 1) left_out_ += first - exported_ - 1;
    for (const v1::StepRecord& record : history.records()) {
      const uint64_t position = record.plan().position();
      // The other coordinators export what they decided.
      const bool is_ours = history.decided_unix_millis().contains(position);
      if (position <= exported_ || position > last || !is_ours) continue;
      const auto parent = parents_.find(record.plan().step().step());
      std::optional<TraceContext> context;
      if (parent != parents_.end()) context = parent->second.context;
      for (TraceSpan& span :
           SpansOf(record, history.phases(), context,
                   [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return random_(); })) {
        spans.push_back(std::move(span));
      }
    }
    exported_ = std::max(exported_, last);
    LOG_IF_EVERY_N(WARNING, left_out_ > 0, 60)
        << left_out_ << " steps have no trace: a trace takes " << kMostSteps << " steps a second";
  }
  if (!spans.empty()) send_(std::move(spans));
}

}  // namespace kaon::coordinator
