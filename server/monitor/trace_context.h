// The place of a span in a trace, as W3C's Trace Context names it. Values and a pure function; any
// thread.
#ifndef KAON_SERVER_MONITOR_TRACE_CONTEXT_H_
#define KAON_SERVER_MONITOR_TRACE_CONTEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace kaon::monitor {

struct TraceContext {
  // 16 bytes.
  std::string trace_id;
  // 8 bytes.
  std::string span_id;
  // The trainer exports its span.
  bool sampled = true;
};

// Reads a traceparent of version 00, and the known part of a later version. Absent if it is
// malformed, or an id is zero.
std::optional<TraceContext> ParseTraceparent(absl::string_view traceparent);

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_TRACE_CONTEXT_H_
