// Exports a trace of each step to a collector of OpenTelemetry: who worked on what, and when. It
// asks the shards once a second, and delays no step. Owned by CoordinatorServer; any thread.
#ifndef KAON_SERVER_COORDINATOR_TRACE_STEP_TRACER_H_
#define KAON_SERVER_COORDINATOR_TRACE_STEP_TRACER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/mutex.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/coordinator/trace/step_spans.h"
#include "server/monitor/trace_context.h"

namespace kaon::coordinator {

// Answers of the shards may come late: they own the tracer.
class StepTracer : public std::enable_shared_from_this<StepTracer> {
 public:
  // Steps that one look exports. Those of a faster job are left out and counted.
  static constexpr uint32_t kMostSteps = 40;

  // Takes the spans of some steps.
  using Send = std::function<void(std::vector<TraceSpan> spans)>;

  // `queries` outlives every answer that it owes.
  static std::shared_ptr<StepTracer> Make(const ClusterQueries& queries, Send send) {
    return std::shared_ptr<StepTracer>(new StepTracer(queries, std::move(send)));
  }

  // Tells the traceparent with which a rank wants to begin a step of a job. The lowest rank's
  // counts. Those of other jobs and of steps that are not near are forgotten.
  void NoteParent(const v1::BeginStepRequest& request);
  // Asks every shard for its phases, unless an answer is still awaited. Exports the steps that this
  // coordinator has decided and that have ended since the last look. Those before the first look
  // are not exported.
  void Look();

  // Returns the number of steps that were left out.
  uint64_t num_left_out() const { return left_out_; }

 private:
  struct Parent {
    std::string job;
    uint32_t rank = 0;
    monitor::TraceContext context;
  };
  using Parents = std::map<uint64_t, Parent>;
  // Order of the log: a rollback goes to an older position in a newer timeline.
  using Place = std::pair<uint64_t, uint64_t>;

  StepTracer(const ClusterQueries& queries, Send send);
  void Export(const v1::StepHistoryResponse& history);
  // Chooses the records to export, and the parents of their steps.
  std::vector<const v1::StepRecord*> Choose(const v1::StepHistoryResponse& history,
                                            Parents& parents);

  const ClusterQueries& queries_;
  const Send send_;
  std::atomic<bool> asked_{false};
  std::atomic<uint64_t> left_out_{0};

  // Used by one answer at a time.
  std::mt19937_64 random_;

  Mutex mu_;
  // Ordered by step.
  Parents parents_ ABSL_GUARDED_BY(mu_);
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  // Places of the newest entry at the last look, and of the newest exported one.
  Place newest_ ABSL_GUARDED_BY(mu_);
  Place exported_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_TRACE_STEP_TRACER_H_
