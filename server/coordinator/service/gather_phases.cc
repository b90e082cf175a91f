#include "server/coordinator/service/gather_phases.h"

#include <atomic>
#include <utility>

#include "absl/status/statusor.h"

namespace kaon::coordinator {

void GatherPhases(const std::vector<std::unique_ptr<ShardLink>>& links, v1::ReadHistoryRequest read,
                  absl::Duration timeout,
                  std::function<void(std::vector<v1::ShardPhases> phases)> done) {
  struct Gathering {
    std::vector<v1::ShardPhases> answers;
    std::function<void(std::vector<v1::ShardPhases>)> done;
    std::atomic<size_t> missing{0};
  };
  // Shared by the calls; the last one to answer passes the answers on.
  auto gathering = std::make_shared<Gathering>();
  gathering->answers.resize(links.size());
  gathering->done = std::move(done);
  gathering->missing = links.size();
  read.set_with_phases(true);
  for (size_t i = 0; i < links.size(); ++i) {
    links[i]->ReadHistory(read, timeout,
                          [gathering, i](absl::StatusOr<v1::ReadHistoryResponse> history) {
                            v1::ShardPhases& phases = gathering->answers[i];
                            phases.set_shard(static_cast<uint32_t>(i));
                            if (history.ok()) {
                              *phases.mutable_steps() = std::move(*history->mutable_phases());
                            } else {
                              phases.set_problem(history.status().ToString());
                            }
                            if (--gathering->missing > 0) return;
                            gathering->done(std::move(gathering->answers));
                          });
  }
}

}  // namespace kaon::coordinator
