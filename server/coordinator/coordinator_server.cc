#include "server/coordinator/coordinator_server.h"

#include <glog/logging.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/transport/channel.h"
#include "client/transport/loopback.h"
#include "proto/failpoint.h"
#include "proto/grpc_deadline.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/auth/server_credentials.h"
#include "server/config/check_directory.h"
#include "server/config/check_range.h"
#include "server/config/memory_limits.h"
#include "server/config/port_file.h"
#include "server/config/server_log.h"
#include "server/listener/secured_port.h"
#include "server/monitor/metrics/http_settings.h"
#include "server/process/standard_services.h"

namespace kaon::coordinator {

namespace {

using config::CheckRange;

constexpr int kMaxShards = 1024;
constexpr uint32_t kMaxHeartbeatMs = 60000;
constexpr uint32_t kMaxTakeoverMs = 600000;
constexpr uint64_t kMaxCheckpointEverySteps = uint64_t{1} << 40;
constexpr uint64_t kDefaultCheckpointKeep = 3;
// Retention never leaves fewer good checkpoints.
constexpr uint64_t kMinCheckpointKeep = 2;
constexpr uint64_t kMaxCheckpointKeep = 1000;
// A registration takes some times the size of its message, which is at most 64 MiB. Those of 64
// workers with 10,000 parameters each, at once, take less as well.
constexpr uint64_t kDefaultMemoryBytes = uint64_t{1} << 30;
constexpr uint64_t kMinMemoryBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 40;
// Checkpoint files, files that libraries open occasionally, a link, and the link that replaces it.
constexpr size_t kOwnDescriptors = 8;
constexpr size_t kDescriptorsOfShard = 2;
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// A worker waits for the record; the machine asks again at each heartbeat.
constexpr absl::Duration kReadTimeout = absl::Seconds(2);

absl::Status CheckAddress(absl::string_view field, const std::string& address) {
  if (!client::HostOf(address).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", proto::Excerpt(address), "\", must be host:port"));
}

bool IsWildcard(absl::string_view listen) {
  const absl::string_view host = client::HostOf(listen);
  return host == "0.0.0.0" || host == "::";
}

uint64_t RandomBits(std::random_device& device) {
  return (static_cast<uint64_t>(device()) << 32) | device();
}

void PassReceived(const v1::ShardToCoordinator& message) {
  if (message.has_state()) PassFailpoint(Failpoint::coordinator_state_received);
  if (message.has_prepared()) PassFailpoint(Failpoint::coordinator_prepared_received);
  if (message.has_applied()) PassFailpoint(Failpoint::coordinator_applied_received);
  if (message.has_checkpoint()) PassFailpoint(Failpoint::checkpoint_report_received);
}

}  // namespace

absl::StatusOr<v1::CoordinatorConfig> CompleteConfig(v1::CoordinatorConfig config) {
  if (config.listen().empty()) config.set_listen("127.0.0.1:0");
  KAON_RETURN_IF_ERROR(CheckAddress("listen", config.listen()));
  if (!config.advertise().empty()) {
    KAON_RETURN_IF_ERROR(CheckAddress("advertise", config.advertise()));
  } else if (IsWildcard(config.listen())) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertise is empty, must be the host:port at which workers reach listen ",
                     config.listen()));
  }
  KAON_RETURN_IF_ERROR(CheckRange("length of shards", config.shards_size(), 1, kMaxShards));
  std::set<absl::string_view> seen;
  for (int i = 0; i < config.shards_size(); ++i) {
    KAON_RETURN_IF_ERROR(CheckAddress(absl::StrCat("shards[", i, "]"), config.shards(i)));
    if (!seen.insert(config.shards(i)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("shards[", i, "] is ", config.shards(i), ", which is there already"));
    }
  }
  KAON_RETURN_IF_ERROR(config::CheckLogLevel(config.log_level()));
  KAON_RETURN_IF_ERROR(config::CheckLogFormat(config.log_format()));
  KAON_RETURN_IF_ERROR(TraceSender::CheckAddress(config.traces_address()));
  if (config.heartbeat_ms() == 0) config.set_heartbeat_ms(100);
  KAON_RETURN_IF_ERROR(CheckRange("heartbeat_ms", config.heartbeat_ms(), 1, kMaxHeartbeatMs));
  if (config.takeover_ms() == 0) config.set_takeover_ms(std::max(500u, 5 * config.heartbeat_ms()));
  // One lost heartbeat must not replace a holder.
  KAON_RETURN_IF_ERROR(
      CheckRange("takeover_ms", config.takeover_ms(), 2 * config.heartbeat_ms(), kMaxTakeoverMs));
  KAON_RETURN_IF_ERROR(CheckRange("checkpoint_every_steps", config.checkpoint_every_steps(), 0,
                                  kMaxCheckpointEverySteps));
  if (config.checkpoint_every_steps() > 0 && config.checkpoint_dir().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint_every_steps is ",
                                                   config.checkpoint_every_steps(),
                                                   ", checkpoint_dir must be given"));
  }
  if (config.checkpoint_keep() == 0) config.set_checkpoint_keep(kDefaultCheckpointKeep);
  KAON_RETURN_IF_ERROR(CheckRange("checkpoint_keep", config.checkpoint_keep(), kMinCheckpointKeep,
                                  kMaxCheckpointKeep));
  if (config.memory_bytes() == 0) config.set_memory_bytes(kDefaultMemoryBytes);
  KAON_RETURN_IF_ERROR(
      CheckRange("memory_bytes", config.memory_bytes(), kMinMemoryBytes, kMaxMemoryBytes));
  return config;
}

CoordinatorServer::~CoordinatorServer() { Shutdown(); }

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    v1::CoordinatorConfig config) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server, Prepare(std::move(config)));
  KAON_RETURN_IF_ERROR(server->Serve());
  return server;
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Prepare(
    v1::CoordinatorConfig config) {
  auto server = std::make_unique<CoordinatorServer>();
  KAON_ASSIGN_OR_RETURN(server->config_, CompleteConfig(std::move(config)));
  const v1::CoordinatorConfig& complete = server->config_;
  KAON_RETURN_IF_ERROR(config::CheckMemoryLimits(0));
  KAON_RETURN_IF_ERROR(
      auth::CheckServerTls(complete.tls(), complete.listen(), proto::Role::kCoordinator));
  KAON_RETURN_IF_ERROR(listener::Listener::CheckAddress(complete.listen()));
  KAON_RETURN_IF_ERROR(
      config::CheckDirectory("checkpoint_dir", complete.checkpoint_dir(), R_OK | X_OK));
  KAON_RETURN_IF_ERROR(config::CheckDirectoryOf("port_file", complete.port_file()));
  KAON_RETURN_IF_ERROR(config::CheckDirectoryOf("audit_file", complete.audit_file()));
  KAON_RETURN_IF_ERROR(metrics::CheckHttpSettings(metrics::HttpSettingsOf(complete)));
  KAON_RETURN_IF_ERROR(server->Connect());
  return server;
}

absl::Status CoordinatorServer::Serve() {
  KAON_ASSIGN_OR_RETURN(keeper_, CheckpointKeeper::Create(config_.checkpoint_dir()));
  KAON_RETURN_IF_ERROR(Listen());
  RunMachine();
  if (!config_.metrics_address().empty()) {
    KAON_ASSIGN_OR_RETURN(
        monitor_,
        CoordinatorMonitor::Start(config_, {*loop_, watch_.meter(), *queries_, counts_, health_}));
  }
  if (config_.port_file().empty()) return absl::OkStatus();
  return config::WritePortFile(config_.port_file(), port_);
}

absl::Status CoordinatorServer::Connect() {
  loop_ = std::make_unique<MachineLoop>(
      [this](SendToShard send) {
        watch_.OnSent(send.content());
        links_[send.shard]->Send(send.message, send.body ? send.body->bytes : "");
      },
      [this](int shard, uint64_t position) { ReadRecord(shard, position); },
      [this](FinishCheckpoint finish) { FinishCheckpointRun(std::move(finish)); },
      [this](const StepMachine& machine) { watch_.Look(machine); },
      [this](const ReadAwaited& read) { AskAwaited(read); });
  const kaon::TlsFiles tls{config_.tls().ca_file(), config_.tls().certificate_file(),
                           config_.tls().private_key_file()};
  for (int i = 0; i < config_.shards_size(); ++i) {
    ShardLinkOptions options;
    options.shard = i;
    KAON_ASSIGN_OR_RETURN(options.channel,
                          client::CreateChannel(config_.shards(i), tls, proto::Role::kShard));
    ShardLinkEvents events;
    events.connected = [this, i] {
      loop_->PostAlways([i](StepMachine& machine, absl::Time) { machine.OnShardConnected(i); });
    };
    events.disconnected = [this, i](const absl::Status& why) {
      loop_->PostAlways(
          [i, why](StepMachine& machine, absl::Time) { machine.OnShardDisconnected(i, why); });
    };
    events.message = [this, i](v1::ShardToCoordinator message) {
      const size_t bytes = message.ByteSizeLong();
      // Copying a std::function copies its captures; sharing avoids a copy of the message.
      auto shared = std::make_shared<v1::ShardToCoordinator>(std::move(message));
      loop_
          ->Post(
              [i, shared = std::move(shared)](StepMachine& machine, absl::Time now) {
                PassReceived(*shared);
                machine.OnShardMessage(i, std::move(*shared), now);
              },
              bytes)
          // A message dropped by a full queue is like one lost on the network.
          .IgnoreError();
    };
    links_.push_back(std::make_unique<ShardLink>(std::move(options), std::move(events)));
  }
  return absl::OkStatus();
}

void CoordinatorServer::FinishCheckpointRun(FinishCheckpoint finish) {
  const uint64_t attempt = finish.attempt;
  // No parts means that the attempt was abandoned. An attempt whose manifest could not be written
  // ends here too.
  if (finish.parts.empty() && !finish.is_there) {
    watch_.OnCheckpoint(finish.facts.id, finish.why);
  }
  keeper_->Finish(std::move(finish), config_.checkpoint_keep(),
                  [this, attempt](const absl::StatusOr<v1::CheckpointSummary>& summary) {
                    if (summary.ok()) watch_.OnCheckpoint(summary->id(), absl::OkStatus());
                    loop_->PostAlways([attempt, summary](StepMachine& machine, absl::Time) {
                      machine.OnCheckpointFinished(attempt, summary);
                    });
                  });
}

void CoordinatorServer::ReadRecord(int shard, uint64_t position) {
  v1::ReadHistoryRequest request;
  request.set_from_position(position);
  request.set_limit(1);
  links_[shard]->ReadHistory(
      request, kReadTimeout, [this, position](absl::StatusOr<v1::ReadHistoryResponse> history) {
        absl::StatusOr<v1::StepRecord> record = absl::UnavailableError("no record");
        if (history.ok() && history->records_size() > 0) record = history->records(0);
        loop_
            ->Post([position, record = std::move(record)](StepMachine& machine, absl::Time) {
              machine.OnRecordRead(position, record);
            })
            // The machine repeats the request.
            .IgnoreError();
      });
}

void CoordinatorServer::AskAwaited(const ReadAwaited& read) {
  links_[read.shard]->DescribeShard(
      {}, kReadTimeout, [this, read](absl::StatusOr<v1::DescribeShardResponse> response) {
        if (!response.ok()) return;
        v1::DescribeShardResponse awaited;
        awaited.mutable_state()->set_applied_position(response->state().applied_position());
        *awaited.mutable_awaited_ranks() = response->awaited_ranks();
        *awaited.mutable_awaited_ballot() = response->awaited_ballot();
        awaited.set_awaited_round(response->awaited_round());
        loop_
            ->Post([read, awaited = std::move(awaited)](StepMachine& machine, absl::Time) {
              machine.OnAwaited(read.shard, awaited);
            })
            // The machine repeats the request.
            .IgnoreError();
      });
}

absl::Status CoordinatorServer::Listen() {
  if (!config_.audit_file().empty()) {
    KAON_ASSIGN_OR_RETURN(audit_, monitor::AuditLog::Open(config_.audit_file()));
    counts_.set_audit(audit_.get());
  }
  coordinator_service_ = std::make_unique<CoordinatorService>(*loop_, counts_);
  queries_ = std::make_unique<ClusterQueries>(
      *loop_, links_, std::vector<std::string>(config_.shards().begin(), config_.shards().end()),
      *keeper_, health_, counts_, watch_.decision_times());
  if (!config_.traces_address().empty()) {
    traces_ = std::make_unique<StepTraces>(config_.traces_address(), *queries_);
    coordinator_service_->OnBegin(
        [this](const v1::BeginStepRequest& request) { traces_->OnBegin(request); });
  }
  admin_service_ = std::make_unique<AdminService>(*loop_, links_, *queries_, *keeper_, counts_);
  process_service_ =
      std::make_unique<process::ProcessService>("kaon-coordinator", config_, counts_);
  process::EnableStandardServices();
  grpc::ServerBuilder builder;
  // As on a shard: gRPC stops reading before its messages take everything.
  grpc::ResourceQuota quota("kaon-coordinator");
  quota.Resize(config_.memory_bytes());
  builder.SetResourceQuota(quota);
  KAON_ASSIGN_OR_RETURN(
      listener_, listener::AddSecuredPort(builder, config_.tls(), config_.listen(), counts_));
  listener_->AddService(builder, *coordinator_service_, v1::Coordinator::service_full_name());
  listener_->AddService(builder, *admin_service_, v1::Admin::service_full_name());
  listener_->AddService(builder, *process_service_, v1::ServerProcess::service_full_name());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  // Before the first call: Client::Connect takes a server without them for another one.
  process::ShowServing(*server_,
                       {v1::Admin::service_full_name(), v1::ServerProcess::service_full_name()});
  health_.ShowIn(server_->GetHealthCheckService());
  KAON_RETURN_IF_ERROR(
      listener_->Start(kOwnDescriptors + config_.shards_size() * kDescriptorsOfShard +
                           (config_.metrics_address().empty() ? 0 : metrics::kHttpDescriptors),
                       config_.has_tls()));
  port_ = listener_->port();
  address_ = config_.advertise();
  if (address_.empty()) {
    address_ = absl::StrCat(config_.listen().substr(0, config_.listen().rfind(':')), ":", port_);
  }
  return absl::OkStatus();
}

void CoordinatorServer::RunMachine() {
  std::random_device device;
  StepMachineOptions options;
  options.address = address_;
  options.shard_addresses.assign(config_.shards().begin(), config_.shards().end());
  options.incarnation_high = RandomBits(device);
  options.incarnation_low = RandomBits(device);
  options.seed = RandomBits(device);
  options.heartbeat = absl::Milliseconds(config_.heartbeat_ms());
  options.takeover = absl::Milliseconds(config_.takeover_ms());
  options.takes_checkpoints = !config_.checkpoint_dir().empty();
  options.checkpoint_every_steps = config_.checkpoint_every_steps();
  loop_->Start(std::move(options));
  for (int i = 0; i < links_.size(); ++i) {
    v1::CoordinatorToShard probe;
    probe.set_holder_address(address_);
    probe.set_shard(i);
    probe.set_num_shards(config_.shards_size());
    probe.mutable_probe();
    links_[i]->Start(std::move(probe));
  }
  LOG(INFO) << "coordinator " << address_ << " serves " << links_.size() << " shards";
}

void CoordinatorServer::Shutdown() {
  // First all callers get their answers. Then no new work can start. Then the port closes.
  if (loop_) loop_->Stop();
  if (monitor_) monitor_->Stop();
  if (traces_) traces_->Stop();
  for (const auto& link : links_) link->Shutdown();
  if (keeper_) keeper_->Stop();
  health_.ShowIn(nullptr);
  if (listener_) listener_->Stop();
  if (server_) {
    server_->Shutdown(proto::DeadlineAfter(kShutdownGrace));
    server_->Wait();
    server_.reset();
  }
}

}  // namespace kaon::coordinator
