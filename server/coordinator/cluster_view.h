// The state of all shards at about one moment, gathered for the Admin service, and views of the job
// derived from it. Any thread may gather; the other functions are pure.
#ifndef KAON_SERVER_COORDINATOR_CLUSTER_VIEW_H_
#define KAON_SERVER_COORDINATOR_CLUSTER_VIEW_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/shard_link.h"

namespace kaon::coordinator {

struct ClusterView {
  std::vector<std::string> addresses;
  // Indexed by shard. An error says why a shard could not be described.
  std::vector<absl::StatusOr<v1::DescribeShardResponse>> shards;

  // Returns the shard that has applied the most entries among those that answered; -1 if none did.
  int Newest() const;
  // Returns the job as the newest shard knows it. An empty `job` means the only job.
  //   NOT_FOUND    there is another job or none; names the job that exists
  //   UNAVAILABLE  no shard that answered knows a job and some did not answer; has the first reason
  absl::StatusOr<v1::JobDescription> DescribeJob(absl::string_view job) const;
  // RESOURCE_EXHAUSTED if the shard can make nothing durable at the moment: no step ends then. OK
  // for a shard that did not answer.
  absl::Status CheckVotes(uint32_t shard) const;
  // Returns a job of DescribeJob in short.
  static v1::JobRow RowOf(const v1::JobDescription& job);
  // Returns one row per parameter of `job` with id >= `first` whose name `wanted` accepts, at most
  // `limit` rows. The state is absent where the shard did not answer. Sets `next` to the id to
  // continue with, or to the number of parameters at the end.
  std::vector<v1::ParameterRow> Rows(const v1::JobDescription& job, uint32_t first, uint32_t limit,
                                     const std::function<bool(const std::string&)>& wanted,
                                     uint32_t* next) const;
};

// Asks every shard, each within `timeout`. Calls `done` once, on a thread of gRPC. `links` must
// outlive the calls.
void GatherCluster(const std::vector<std::unique_ptr<ShardLink>>& links,
                   std::vector<std::string> addresses, absl::Duration timeout,
                   std::function<void(ClusterView)> done);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CLUSTER_VIEW_H_
