#include "client/transport/nccl_shard_channel.h"

#include <grpcpp/client_context.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/nccl_lane.h"
#include "client/transport/nccl_pull.h"
#include "client/transport/nccl_push.h"
#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "kernels/mutex.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"

namespace kaon::client {

namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(2);

// The parts of one pull.
class PullStreams : public PullStream {
 public:
  explicit PullStreams(std::vector<std::shared_ptr<PullStream>> streams)
      : streams_(std::move(streams)) {}
  void Cancel() override {
    for (const std::shared_ptr<PullStream>& stream : streams_) stream->Cancel();
  }

 private:
  const std::vector<std::shared_ptr<PullStream>> streams_;
};

bool IsOnDevice(const PullOptions& part) {
  return !part.targets.empty() && part.targets.front().device >= 0;
}

// Returns the pulls of the targets in host memory and on the device. The first error of both is
// their result.
std::vector<PullOptions> DivideByDevice(PullOptions options) {
  std::vector<PullOptions> parts;
  for (const bool on_device : {false, true}) {
    PullOptions part = options;
    part.request.clear_parameter_ids();
    part.targets.clear();
    for (size_t i = 0; i < options.targets.size(); ++i) {
      if ((options.targets[i].device >= 0) != on_device) continue;
      part.request.add_parameter_ids(options.request.parameter_ids(static_cast<int>(i)));
      part.targets.push_back(options.targets[i]);
    }
    if (!part.targets.empty()) parts.push_back(std::move(part));
  }
  if (parts.size() < 2) return {std::move(options)};
  struct Joint {
    Mutex mu;
    absl::Status status ABSL_GUARDED_BY(mu);
    bool ended ABSL_GUARDED_BY(mu) = false;
  };
  const auto joint = std::make_shared<Joint>();
  for (PullOptions& part : parts) {
    part.done = [joint, done = options.done](const absl::Status& status) {
      absl::Status result;
      {
        MutexLock lock(joint->mu);
        joint->status.Update(status);
        if (!std::exchange(joint->ended, true)) return;
        result = joint->status;
      }
      done(result);
    };
  }
  return parts;
}

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
    std::vector<PullOptions> parts = DivideByDevice(std::move(options));
    if (parts.size() == 1 && !IsOnDevice(parts[0])) return options_.pulls->Pull(parts[0]);
    std::vector<std::shared_ptr<PullStream>> streams;
    for (PullOptions& part : parts) {
      streams.push_back(IsOnDevice(part) ? PullToDevice(std::move(part))
                                         : options_.pulls->Pull(std::move(part)));
    }
    return std::make_shared<PullStreams>(std::move(streams));
  }

 private:
  // The lanes of one rank: each direction has a session of its own.
  struct Lanes {
    std::shared_ptr<NcclLane> pushes;
    // Null before the first pull.
    std::shared_ptr<NcclPullLane> pulls;
  };

  // A process may run several ranks; each is one end of communicators of its own.
  std::shared_ptr<NcclLane> LaneOf(const std::string& job, uint32_t rank) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::shared_ptr<NcclLane>& lane = lanes_[{job, rank}].pushes;
    if (lane == nullptr) lane = std::make_shared<NcclLane>(OptionsOf(job, rank, /*pulls=*/false));
    return lane;
  }

  NcclLane::Options OptionsOf(const std::string& job, uint32_t rank, bool pulls) const {
    v1::OpenNcclSessionRequest request;
    request.set_job(job);
    request.set_rank(rank);
    request.set_pulls(pulls);
    NcclLane::Options options;
    options.name = absl::StrCat("shard ", options_.name, ", rank ", rank, pulls ? ", pulls" : "");
    options.open = [open = options_.open, request] { return open(request); };
    options.link = options_.link;
    options.aborts = options_.aborts;
    options.session = options_.session;
    options.retry_after = options_.retry_after;
    return options;
  }

  std::shared_ptr<PullStream> PullToDevice(PullOptions options) {
    NcclPull::Options pull;
    pull.tracker = options_.tracker;
    pull.link = options_.link;
    pull.network = options_.pulls;
    pull.connection = options_.connection;
    pull.counters = options_.counters;
    SetPair(options.request.job(), &pull);
    const auto stream = std::make_shared<NcclPull>(std::move(pull), std::move(options));
    stream->Start();
    return stream;
  }

  // A pull has no rank. It uses the lanes of a rank of this process whose pushes have a session.
  void SetPair(const std::string& job, NcclPull::Options* pull) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    for (auto at = lanes_.lower_bound({job, 0}); at != lanes_.end() && at->first.first == job;
         ++at) {
      if (!at->second.pushes->has_session()) continue;
      std::shared_ptr<NcclPullLane>& lane = at->second.pulls;
      pull->rank = at->first.second;
      if (lane == nullptr) {
        lane = std::make_shared<NcclPullLane>(OptionsOf(job, pull->rank, /*pulls=*/true));
      }
      pull->lane = lane;
      return;
    }
  }

  const NcclShardChannelOptions options_;
  Mutex mu_;
  // Shared with their calls. The key is job and rank.
  std::map<std::pair<std::string, uint32_t>, Lanes> lanes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<v1::OpenNcclSessionResponse> OpenNcclSession(
    const std::shared_ptr<grpc::Channel>& channel, const v1::OpenNcclSessionRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(proto::DeadlineAfter(kOpenTimeout));
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
