// The frame of the status page: one self-contained HTML document with its style and script. Pure
// functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_PAGE_SHELL_H_
#define KAON_SERVER_COORDINATOR_PAGE_PAGE_SHELL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/page/sections.h"
#include "server/monitor/metrics/http_server.h"

namespace kaon::coordinator {

// Part of the steps that the charts show.
struct Range {
  uint64_t from = 0;
  uint64_t to = UINT64_MAX;
  // Query of the address that shows it, such as "?last=1000".
  std::string query;
};

// Returns a response with the HTML of a whole page. `title` and `job` are plain text; `main` is
// HTML. Its policy allows nothing from elsewhere and no script but its own.
metrics::HttpResponse PageResponse(absl::string_view title, absl::string_view job,
                                   absl::string_view main);

// Facts that are older are said to be old. Fresh ones come every second.
inline constexpr absl::Duration kOldFacts = absl::Seconds(3);
// Returns how old the facts are, as text; empty if they are not old, or if there are none.
std::string AgeText(absl::Duration age);

// Returns the main part of the overview. `age`: that of the facts in `sections`.
std::string OverviewHtml(const std::vector<Section>& sections, const Range& range,
                         absl::Duration age);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_PAGE_SHELL_H_
