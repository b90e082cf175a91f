// Describes one step as spans of a trace: the step, each shard's part, and each phase of that part.
// A pure function; any thread.
#ifndef KAON_SERVER_COORDINATOR_TRACE_STEP_SPANS_H_
#define KAON_SERVER_COORDINATOR_TRACE_STEP_SPANS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/trace_collector.pb.h"
#include "server/monitor/trace_context.h"

namespace kaon::coordinator {

using TraceSpan = opentelemetry::proto::collector::trace::v1::Span;

// Returns the spans of a train step, the step itself first; none if no shard told its phases. The
// step lasts from the first acceptance of its plan to the end of its last phase, by the shards'
// clocks. `parent` is the trainer's span; without one, a trace begins. `random` gives ids.
std::vector<TraceSpan> SpansOf(const v1::StepRecord& record,
                               const google::protobuf::RepeatedPtrField<v1::ShardPhases>& phases,
                               const std::optional<monitor::TraceContext>& parent,
                               const std::function<uint64_t()>& random);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_TRACE_STEP_SPANS_H_
