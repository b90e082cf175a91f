#include "server/coordinator/monitor/worker_presence.h"

#include <utility>

namespace kaon::coordinator {

int WorkerPresence::Note(const std::vector<WorkerSnapshot>& workers, absl::Time now) {
  int present = 0;
  // Ranks that the job no longer has are forgotten.
  std::map<uint32_t, Heard> heard;
  for (const WorkerSnapshot& worker : workers) {
    Heard& one = heard[worker.rank] = heard_[worker.rank];
    if (worker.awaits || worker.calls != one.calls) one = {worker.calls, now};
    if (now - one.at <= kWindow) ++present;
  }
  heard_ = std::move(heard);
  return present;
}

}  // namespace kaon::coordinator
