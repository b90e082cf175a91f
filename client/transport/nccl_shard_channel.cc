#include "client/transport/nccl_shard_channel.h"

#include <grpcpp/client_context.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/nccl_lane.h"
#include "client/transport/nccl_push.h"
#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "kernels/mutex.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"

namespace kaon::client {

namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(2);

class NcclShardChannel : public ShardChannel {
 public:
  explicit NcclShardChannel(NcclShardChannelOptions options) : options_(std::move(options)) {}

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    NcclPush::Options push;
    push.tracker = options_.tracker;
    push.lane = LaneOf(open.job(), open.rank());
    push.link = options_.link;
    push.counters = options_.counters;
    push.required = options_.required;
    const auto stream = std::make_shared<NcclPush>(std::move(push), std::move(source));
    stream->Start(*options_.pushes, open);
    return stream;
  }

  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    return options_.pulls->Pull(std::move(options));
  }

 private:
  // A process may run several ranks; each is one end of a communicator of its own.
  std::shared_ptr<NcclLane> LaneOf(const std::string& job, uint32_t rank) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::shared_ptr<NcclLane>& lane = lanes_[{job, rank}];
    if (lane != nullptr) return lane;
    NcclLane::Options options;
    options.name = absl::StrCat("shard ", options_.name, ", rank ", rank);
    options.open = [open = options_.open, job, rank] { return open(job, rank); };
    options.link = options_.link;
    options.aborts = options_.aborts;
    options.session = options_.session;
    options.retry_after = options_.retry_after;
    lane = std::make_shared<NcclLane>(std::move(options));
    return lane;
  }

  const NcclShardChannelOptions options_;
  Mutex mu_;
  // Shared with their pushes.
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<NcclLane>> lanes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<v1::OpenNcclSessionResponse> OpenNcclSession(
    const std::shared_ptr<grpc::Channel>& channel, const std::string& job, uint32_t rank) {
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(kOpenTimeout));
  v1::OpenNcclSessionRequest request;
  request.set_job(job);
  request.set_rank(rank);
  v1::OpenNcclSessionResponse response;
  const absl::Status status =
      proto::FromGrpc(v1::ShardNccl::NewStub(channel)->OpenSession(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

std::shared_ptr<ShardChannel> CreateNcclShardChannel(NcclShardChannelOptions options) {
  return std::make_shared<NcclShardChannel>(std::move(options));
}

}  // namespace kaon::client
