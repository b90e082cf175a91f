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
#include "kernels/mutex.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/coordinator/trace/step_spans.h"
#include "server/coordinator/trace/trace_context.h"

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

  // Tells the traceparent with which that rank began a step. The lowest rank's counts.
  void NoteParent(uint64_t step, uint32_t rank, const std::string& traceparent);
  // Exports the steps that have ended since the last look, unless its answer is still awaited.
  // Those before the first look are not exported.
  void Look();

  // Returns the number of steps that were left out.
  uint64_t num_left_out() const { return left_out_; }

 private:
  struct Parent {
    uint32_t rank = 0;
    TraceContext context;
  };

  StepTracer(const ClusterQueries& queries, Send send);
  void Export(const v1::StepHistoryResponse& history);

  const ClusterQueries& queries_;
  const Send send_;
  std::atomic<bool> asked_{false};
  std::atomic<uint64_t> left_out_{0};

  Mutex mu_;
  // Ordered by step; only the newest are kept.
  std::map<uint64_t, Parent> parents_ ABSL_GUARDED_BY(mu_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  // Positions of the newest entry at the last look, and of the newest exported one.
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t exported_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_TRACE_STEP_TRACER_H_
