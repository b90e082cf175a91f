#include "server/monitor/trace_context.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace kaon::monitor {

namespace {

// Lengths of version, trace id, parent id and flags, with the hyphens between them.
constexpr size_t kTraceAt = 3;
constexpr size_t kSpanAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kLength = 55;

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

bool IsZero(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '0'; });
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view traceparent) {
  if (traceparent.size() < kLength) return std::nullopt;
  const absl::string_view version = traceparent.substr(0, 2);
  const absl::string_view trace_id = traceparent.substr(kTraceAt, 32);
  const absl::string_view span_id = traceparent.substr(kSpanAt, 16);
  if (!IsHex(version) || version == "ff" || !IsHex(trace_id) || !IsHex(span_id) ||
      !IsHex(traceparent.substr(kFlagsAt, 2)) || IsZero(trace_id) || IsZero(span_id)) {
    return std::nullopt;
  }
  for (const size_t hyphen : {kTraceAt, kSpanAt, kFlagsAt}) {
    if (traceparent[hyphen - 1] != '-') return std::nullopt;
  }
  const absl::string_view rest = traceparent.substr(kLength);
  if (version == "00" ? !rest.empty() : !rest.empty() && rest[0] != '-') return std::nullopt;
  const std::string flags = absl::HexStringToBytes(traceparent.substr(kFlagsAt, 2));
  return TraceContext{absl::HexStringToBytes(trace_id), absl::HexStringToBytes(span_id),
                      (flags[0] & 1) != 0};
}

}  // namespace kaon::monitor
