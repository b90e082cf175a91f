// The traces of a coordinator: looks at the steps once a second and sends them to a collector.
// Owned by CoordinatorServer; any thread.
#ifndef KAON_SERVER_COORDINATOR_TRACE_STEP_TRACES_H_
#define KAON_SERVER_COORDINATOR_TRACE_STEP_TRACES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/coordinator/trace/step_tracer.h"
#include "server/coordinator/trace/trace_sender.h"
#include "server/monitor/metrics/sampler.h"

namespace kaon::coordinator {

class StepTraces {
 public:
  // `address` is that of TraceSender. `queries` outlives every answer that it owes, and this object
  // does, too.
  StepTraces(const std::string& address, const ClusterQueries& queries)
      : sender_(address, "kaon"),
        tracer_(StepTracer::Make(
            queries, [this](std::vector<TraceSpan> spans) { sender_.Send(std::move(spans)); })),
        sampler_([this] { tracer_->Look(); }) {}

  // Tells that a worker wants to begin a step.
  void OnBegin(const v1::BeginStepRequest& request) { tracer_->NoteParent(request); }
  // Looks no more. Idempotent.
  void Stop() { sampler_.Stop(); }

 private:
  TraceSender sender_;
  const std::shared_ptr<StepTracer> tracer_;
  metrics::Sampler sampler_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_TRACE_STEP_TRACES_H_
