#include "client/transport/shm_shard_channel.h"

#include <glog/logging.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "client/transport/event_loop.h"
#include "client/transport/shm_pull.h"
#include "client/transport/shm_push.h"
#include "kaon/v1/shard_local.grpc.pb.h"
#include "kernels/mutex.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/local_socket.h"
#include "proto/status_macros.h"

namespace kaon::client {

namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(2);
// One for a push and one for a pull. More calls at once are rare, and sessions are few.
constexpr size_t kMaxLanes = 2;
constexpr absl::Duration kMaxRetryAfter = absl::Hours(1);

class ShmShardChannel : public ShardChannel {
 public:
  explicit ShmShardChannel(ShmShardChannelOptions options)
      : options_(std::move(options)), retry_after_(options_.retry_after) {}

  std::shared_ptr<PushStream> Push(const v1::PushOpen& open,
                                   std::shared_ptr<PushSource> source) override {
    // Keep the source: if no lane is free, the call is dropped and the network pushes.
    const auto call = std::make_shared<ShmPush>(options_.tracker, options_.counters, open, source);
    if (Start(call)) return call;
    return options_.network->Push(open, std::move(source));
  }

  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    const auto call = std::make_shared<ShmPull>(options_.tracker, options_.counters, options);
    if (options.request.ByteSizeLong() <= proto::kMaxRingBody && Start(call)) return call;
    return options_.network->Pull(std::move(options));
  }

 private:
  bool Start(const std::shared_ptr<ShmCall>& call) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    for (const auto& lane : lanes_) {
      if (lane->Start(call, /*may_open=*/false)) return true;
    }
    if (!options_.required && EventLoop::Now() < refused_until_) return false;
    for (const auto& lane : lanes_) {
      if (lane->Start(call, /*may_open=*/true)) return true;
    }
    if (lanes_.size() == kMaxLanes || !MayAddLane()) return false;
    lanes_.push_back(std::make_unique<ShmLane>(
        [this] { return Open(); },
        [this](ShmCall& refused, const absl::Status& why) { OnRefused(refused, why); }));
    return lanes_.back()->Start(call, /*may_open=*/true);
  }

  // While the shard may be on another machine, only one call at a time asks for a session.
  bool MayAddLane() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return options_.required || lanes_.empty() || lanes_.back()->has_session();
  }

  absl::StatusOr<std::unique_ptr<proto::ShmLink>> Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::StatusOr<std::unique_ptr<proto::ShmLink>> link = options_.open();
    if (link.ok()) {
      MutexLock lock(mu_);
      retry_after_ = options_.retry_after;
    }
    return link;
  }

  void OnRefused(ShmCall& call, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    ++options_.counters->shm_refusals;
    if (options_.required) return call.Fail(why);
    // An unavailable shard may soon be back and have sessions.
    if (!absl::IsUnavailable(why)) {
      // Count it without a log line: a shard on another machine is normal.
      VLOG(1) << "shard " << options_.name << " is used over the network: " << why;
      MutexLock lock(mu_);
      refused_until_ = EventLoop::Now() + retry_after_;
      retry_after_ = std::max(retry_after_, std::min(2 * retry_after_, kMaxRetryAfter));
    }
    call.UseNetwork(*options_.network);
  }

  const ShmShardChannelOptions options_;

  Mutex mu_;
  absl::Time refused_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration retry_after_ ABSL_GUARDED_BY(mu_);
  // Last member: their threads use everything above.
  std::vector<std::unique_ptr<ShmLane>> lanes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<proto::ShmLink>> OpenShmSession(
    const std::shared_ptr<grpc::Channel>& channel) {
  absl::Status unreached;
  // Try twice, because the shard that gave the token may have been about to stop.
  for (int attempt = 0; attempt < 2; ++attempt) {
    grpc::ClientContext context;
    context.set_deadline(proto::DeadlineAfter(kOpenTimeout));
    v1::OpenSessionRequest request;
    request.set_boot_id(proto::BootId());
    v1::OpenSessionResponse response;
    const grpc::Status asked =
        v1::ShardLocal::NewStub(channel)->OpenSession(&context, request, &response);
    absl::Status status = proto::FromGrpc(asked);
    // This side never cancels the call, so the shard went away.
    if (absl::IsCancelled(status)) status = proto::ConnectionLost(status.message());
    if (!status.ok()) return status;
    absl::StatusOr<std::unique_ptr<proto::ShmLink>> link =
        proto::ShmLink::Connect(response.socket(), response.token());
    if (link.ok()) return link;
    unreached = link.status();
  }
  // The shard answers, but its socket cannot be reached from here.
  return absl::FailedPreconditionError(unreached.message());
}

std::shared_ptr<ShardChannel> CreateShmShardChannel(ShmShardChannelOptions options) {
  return std::make_shared<ShmShardChannel>(std::move(options));
}

}  // namespace kaon::client
