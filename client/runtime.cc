#include "client/runtime.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/certificate_check.h"
#include "client/transport/channel.h"
#include "client/transport/grpc_shard_channel.h"
#include "client/transport/laned_shard_channel.h"
#include "client/transport/nccl_shard_channel.h"
#include "client/transport/shm_shard_channel.h"
#include "kernels/nccl/load_link.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

namespace {

// See protocol.md section 4.
constexpr uint32_t kMaxLanes = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Create(const ClientOptions& options) {
  if (options.coordinators.empty()) {
    return absl::InvalidArgumentError("coordinators is empty, must name at least one host:port");
  }
  const std::pair<const char*, std::chrono::milliseconds> durations[] = {
      {"call_deadline", options.call_deadline},
      {"step_deadline", options.step_deadline},
      {"wait_log_interval", options.wait_log_interval}};
  for (const auto& [name, duration] : durations) {
    if (duration.count() > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", duration.count(), " ms, must be > 0"));
  }
  if (options.max_bytes_in_flight < proto::kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_bytes_in_flight is ",
                                                   options.max_bytes_in_flight,
                                                   ", must be >= ", proto::kMaxChunkBytes));
  }
  if (options.lanes < 1 || options.lanes > kMaxLanes) {
    return absl::InvalidArgumentError(
        absl::StrCat("lanes is ", options.lanes, ", must be 1 .. ", kMaxLanes));
  }
  KAON_ASSIGN_OR_RETURN(
      const std::string warning,
      CheckCertificates(options.tls,
                        {.roles = {proto::Role::kWorker, proto::Role::kReader, proto::Role::kAdmin},
                         .calls = true}));
  LOG_IF(WARNING, !warning.empty()) << warning;
  auto runtime = std::make_shared<Runtime>(options);
  if (!options.nccl.empty()) {
    kernels::LinkOptions link_options;
    link_options.network = options.nccl;
    link_options.device = options.nccl_device;
    absl::StatusOr<std::shared_ptr<kernels::DeviceLink>> link = kernels::LoadLink(link_options);
    LOG_IF(WARNING, !link.ok()) << "no tensor may be on a device: " << link.status();
    runtime->no_link_ = link.status();
    if (link.ok()) runtime->UseLink(*std::move(link));
  }
  for (const std::string& address : options.coordinators) {
    KAON_RETURN_IF_ERROR(runtime->coordinators().Open(address));
  }
  return runtime;
}

Runtime::Runtime(const ClientOptions& options)
    : options_(options),
      process_(getpid()),
      counters_(std::make_shared<TransferCounters>()),
      calls_(std::make_shared<CallTracker>()),
      coordinators_(options.tls, calls_) {
  if (options.nccl.empty()) no_link_ = absl::InvalidArgumentError("ClientOptions::nccl is empty");
}

void Runtime::UseLink(std::shared_ptr<kernels::DeviceLink> link) {
  LOG(INFO) << "tensors on a device are sent by " << link->name()
            << ", which neither encrypts nor authenticates";
  no_link_ = absl::OkStatus();
  aborts_ = std::make_shared<kernels::AbortQueue>(link);
  link_ = std::move(link);
}

absl::Status Runtime::CheckDevice(int device) const {
  if (device == -1) return absl::OkStatus();
  if (link_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("on device ", device, ", expecting host memory: ", no_link_.message()));
  }
  if (device == link_->device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("on device ", device,
                                                 ", expecting host memory or device ",
                                                 link_->device(), " (ClientOptions::nccl_device)"));
}

bool Runtime::InForkedChild() const { return getpid() != process_; }

absl::Status Runtime::CheckUsable() const {
  if (InForkedChild()) {
    return absl::FailedPreconditionError(absl::StrCat("process ", getpid(),
                                                      " is a fork of process ", process_,
                                                      ", which connected: connect after fork()"));
  }
  MutexLock lock(mu_);
  if (shut_down_) return absl::FailedPreconditionError("the client was destroyed");
  return absl::OkStatus();
}

bool Runtime::AddOperation(std::function<void()> cancel, uint64_t& operation) {
  MutexLock lock(mu_);
  if (shut_down_) return false;
  operation = ++last_operation_;
  operations_.emplace(operation, std::move(cancel));
  return true;
}

void Runtime::RemoveOperation(uint64_t operation) {
  std::function<void()> cancel;
  {
    MutexLock lock(mu_);
    const auto found = operations_.find(operation);
    if (found == operations_.end()) return;
    // Destroy `cancel` outside the lock: it may own the operation.
    cancel = std::move(found->second);
    operations_.erase(found);
    operation_ended_.NotifyAll();
  }
}

void Runtime::Shutdown() {
  loop_.CheckNotOnLoop("the client was destroyed");
  std::vector<std::function<void()>> cancels;
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    for (const auto& [number, cancel] : operations_) cancels.push_back(cancel);
  }
  for (std::function<void()>& cancel : cancels) loop_.Post(std::move(cancel));
  {
    MutexLock lock(mu_);
    while (!operations_.empty()) operation_ended_.Wait(mu_);
  }
  // The loop must still run: calls that end report to it.
  calls_->AwaitNone();
  loop_.Stop();
}

absl::StatusOr<std::shared_ptr<ShardChannel>> Runtime::ShardChannelOf(const std::string& address) {
  {
    MutexLock lock(mu_);
    const auto channel = shard_channels_.find(address);
    if (channel != shard_channels_.end()) return channel->second;
  }
  // Opens the connections without the lock, because this reads files. If two threads do it, the
  // connections of the first one stay.
  KAON_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<grpc::Channel>> connections,
                        CreateChannels(address, options_.tls, proto::Role::kShard, options_.lanes));
  std::vector<std::shared_ptr<ShardChannel>> lanes;
  for (const std::shared_ptr<grpc::Channel>& connection : connections) {
    lanes.push_back(CreateGrpcShardChannel(connection, calls_));
  }
  std::shared_ptr<ShardChannel> made = CreateLanedShardChannel(std::move(lanes));
  if (options_.transport != Transport::kGrpc) {
    ShmShardChannelOptions shm;
    shm.name = address;
    shm.open = [connection = connections[0]] { return OpenShmSession(connection); };
    shm.network = std::move(made);
    shm.required = options_.transport == Transport::kShm;
    shm.tracker = calls_;
    shm.counters = counters_;
    made = CreateShmShardChannel(std::move(shm));
  }
  if (link_ != nullptr) {
    NcclShardChannelOptions nccl;
    nccl.name = address;
    nccl.open = [connection = connections[0]](const v1::OpenNcclSessionRequest& request) {
      return OpenNcclSession(connection, request);
    };
    nccl.connection = connections[0];
    nccl.link = link_;
    nccl.aborts = aborts_;
    nccl.pushes = CreateGrpcShardChannel(connections[0], calls_);
    nccl.pulls = std::move(made);
    nccl.tracker = calls_;
    nccl.counters = counters_;
    made = CreateNcclShardChannel(std::move(nccl));
  }
  MutexLock lock(mu_);
  return shard_channels_.emplace(address, std::move(made)).first->second;
}

absl::Duration Runtime::try_timeout() const { return std::min(call_deadline(), absl::Seconds(5)); }

}  // namespace kaon::client
