// The parts of the status page, each an element of its own that is replaced when it changes. Pure
// functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_SECTIONS_H_
#define KAON_SERVER_COORDINATOR_PAGE_SECTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "server/coordinator/page/step_curves.h"

namespace kaon::coordinator {

// The facts that the page shows in addition to its curves, of about one moment.
struct PageFacts {
  // Why the rest is old or missing; OK if it is not.
  absl::Status problem;
  v1::GetStatusResponse status;
  // Newest log entries with their times.
  v1::StepHistoryResponse newest;
  // May be older than the rest.
  v1::ListCheckpointsResponse checkpoints;
  // When the list was read, in milliseconds since 1970 UTC; 0 = unknown.
  int64_t checkpoints_unix_millis = 0;
  // Why there is no list of checkpoints; OK if there is one.
  absl::Status checkpoints_problem;
};

struct Section {
  std::string id;
  std::string html;
};

// Rows of a table of shards or workers, at most. Those with a problem come first.
inline constexpr int kMaxRows = 100;

// Returns all sections of the overview, in their order.
std::vector<Section> Sections(const PageFacts& data, const Curves& curves);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_SECTIONS_H_
