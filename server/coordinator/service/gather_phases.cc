#include "server/coordinator/service/gather_phases.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"

namespace kaon::coordinator {

void GatherPhases(const std::vector<std::unique_ptr<ShardLink>>& links, v1::ReadHistoryRequest read,
                  absl::Duration timeout,
                  std::function<void(std::vector<v1::ShardPhases> phases)> done) {
  struct Gathering {
    std::vector<std::optional<v1::ShardPhases>> answers;
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
                            if (history.ok()) {
                              v1::ShardPhases& phases = gathering->answers[i].emplace();
                              phases.set_shard(static_cast<uint32_t>(i));
                              *phases.mutable_steps() = std::move(*history->mutable_phases());
                            }
                            if (--gathering->missing > 0) return;
                            std::vector<v1::ShardPhases> answered;
                            for (std::optional<v1::ShardPhases>& one : gathering->answers) {
                              if (one.has_value()) answered.push_back(*std::move(one));
                            }
                            gathering->done(std::move(answered));
                          });
  }
}

}  // namespace kaon::coordinator
