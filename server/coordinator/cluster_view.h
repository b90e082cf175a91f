// What all shards say of themselves at about one moment, gathered for the Admin service, and the
// views of the job that follow from it. Gathering may be started by any thread; the rest are pure
// functions.
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
  // By shard; the status says why a shard could not be described.
  std::vector<absl::StatusOr<v1::DescribeShardResponse>> shards;

  // The shard that has applied most among those with a registered job; -1 if none.
  int Newest() const;
  // The job as the newest shard knows it. `job` empty = the only one. NOT_FOUND names the job there
  // is; UNAVAILABLE, with the first reason, when no shard that answered knows a job and some did
  // not answer.
  absl::StatusOr<v1::JobDescription> DescribeJob(absl::string_view job) const;
  // One row per parameter of `job`, for ids `first` and above whose name `wanted` accepts, at most
  // `limit`; the state is absent where the shard did not answer. `next` becomes the id to go on
  // with, or the number of parameters.
  std::vector<v1::ParameterRow> Rows(const v1::JobDescription& job, uint32_t first, uint32_t limit,
                                     const std::function<bool(const std::string&)>& wanted,
                                     uint32_t* next) const;
};

// Asks every shard, each with `timeout`; `done` runs once, on gRPC's threads. The links outlive the
// calls.
void GatherCluster(const std::vector<std::unique_ptr<ShardLink>>& links,
                   std::vector<std::string> addresses, absl::Duration timeout,
                   std::function<void(ClusterView)> done);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CLUSTER_VIEW_H_
