#include "server/shard/shard_server.h"

#include <glog/logging.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/failpoint.h"
#include "proto/grpc_deadline.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "server/auth/server_credentials.h"
#include "server/checkpoint/written_by.h"
#include "server/config/check_directory.h"
#include "server/config/durability.h"
#include "server/config/loss_remedy.h"
#include "server/config/memory_limits.h"
#include "server/config/port_file.h"
#include "server/disk/device_error.h"
#include "server/disk/open_block_file.h"
#include "server/disk/posix_directory.h"
#include "server/disk/private_directory.h"
#include "server/journal/disk_journal.h"
#include "server/journal/history.h"
#include "server/journal/identity_file.h"
#include "server/journal/interval_journal.h"
#include "server/journal/interval_schedule.h"
#include "server/journal/memory_journal.h"
#include "server/listener/secured_port.h"
#include "server/monitor/metrics/http_settings.h"
#include "server/process/standard_services.h"
#include "server/shard/snapshot/directory_claim.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/snapshot_points.h"

namespace kaon::shard {

namespace {

// The shard keeps some dozens of bytes for each chunk until its step is applied.
constexpr uint64_t kMinChunkBytes = 4096;
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// Enough for a state of gigabytes on a slow disk. Without the snapshot the next start replays more.
constexpr absl::Duration kLastSnapshot = absl::Seconds(20);
// Bytes of a journal segment, and the least if snapshots come more often than they should.
constexpr uint64_t kSegmentBytes = uint64_t{64} << 20;
constexpr uint64_t kLeastSegmentBytes = uint64_t{16} << 10;
// Journal, snapshot and checkpoint at once, and what libraries open now and then.
constexpr size_t kOwnDescriptors = 12;
// File of parameters in each of nvme_dirs.
constexpr char kNvmeFile[] = "kaon-parameters";

// Writes the file `written_by`. Without room for it the shard serves all the same, and writes the
// file at its next start (P18).
absl::Status Claim(disk::Directory& files, const v1::CheckpointFile& present) {
  const absl::Status status = ClaimDirectory(files, present);
  if (!absl::IsResourceExhausted(status)) return status;
  LOG(WARNING) << files.path() << "/" << kWrittenByFile << " is not written: " << status;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardServer>> ShardServer::Start(v1::ShardConfig config) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<ShardServer> server, Prepare(std::move(config)));
  KAON_RETURN_IF_ERROR(server->Serve());
  return server;
}

absl::StatusOr<std::unique_ptr<ShardServer>> ShardServer::Prepare(v1::ShardConfig config) {
  std::unique_ptr<ShardServer> server(new ShardServer());
  KAON_ASSIGN_OR_RETURN(server->config_, CompleteConfig(std::move(config)));
  const v1::ShardConfig& complete = server->config_;
  KAON_RETURN_IF_ERROR(
      config::CheckMemoryLimits(complete.host_memory_bytes() + complete.staging_bytes()));
  KAON_RETURN_IF_ERROR(
      auth::CheckServerTls(complete.tls(), complete.listen(), proto::Role::kShard));
  KAON_RETURN_IF_ERROR(listener::Listener::CheckAddress(complete.listen()));
  KAON_RETURN_IF_ERROR(disk::CheckPrivateDirectory("data_dir", complete.data_dir()));
  // A wrong path fails the start, not the first checkpoint.
  KAON_RETURN_IF_ERROR(
      config::CheckDirectory("checkpoint_dir", complete.checkpoint_dir(), R_OK | X_OK));
  for (const std::string& directory : complete.nvme_dirs()) {
    KAON_RETURN_IF_ERROR(config::CheckDirectory("nvme_dirs", directory, R_OK | W_OK | X_OK));
  }
  KAON_RETURN_IF_ERROR(config::CheckDirectory("shm_dir", complete.shm_dir(), W_OK | X_OK));
  KAON_RETURN_IF_ERROR(config::CheckDirectoryOf("port_file", complete.port_file()));
  KAON_RETURN_IF_ERROR(config::CheckDirectoryOf("audit_file", complete.audit_file()));
  KAON_RETURN_IF_ERROR(metrics::CheckHttpSettings(metrics::HttpSettingsOf(complete)));
  KAON_RETURN_IF_ERROR(server->BuildBackend(complete));
  return server;
}

absl::Status ShardServer::Serve() {
  KAON_RETURN_IF_ERROR(Build(config_));
  KAON_RETURN_IF_ERROR(Listen(config_));
  if (!config_.metrics_address().empty()) {
    KAON_ASSIGN_OR_RETURN(monitor_, ShardMonitor::Start(config_, *loop_, counts_, health_));
  }
  PassFailpoint(Failpoint::shard_serving);
  if (config_.port_file().empty()) return absl::OkStatus();
  return config::WritePortFile(config_.port_file(), port_);
}

absl::Status ShardServer::BuildBackend(const v1::ShardConfig& config) {
  kernels::BackendOptions backend;
  backend.name = config.backend();
  backend.gemm = config.gemm();
  backend.threads = static_cast<int>(config.threads());
  backend.device = DeviceOrdinal(config);
  backend.host_memory = config.memory_tier() == "host";
  backend.device_memory_bytes = config.device_memory_bytes();
  if (!config.isa().empty()) backend.isa = config.isa();
  KAON_ASSIGN_OR_RETURN(backend_, kernels::CreateBackend(backend));
  backend_resident_bytes_ = listener::ResidentBytes();
  return BuildTiers(config);
}

absl::Status ShardServer::Build(const v1::ShardConfig& config) {
  KAON_ASSIGN_OR_RETURN(directory_, journal::ShardDirectory::Open(config.data_dir()));
  KAON_ASSIGN_OR_RETURN(marker_, journal::IncarnationMarker::Open(config.data_dir()));
  KAON_RETURN_IF_ERROR(BuildNvme(config));
  ShardCore::Options options;
  options.store = store_.get();
  options.nvme = nvme_.get();
  for (const std::string& directory : config.nvme_dirs()) {
    std::error_code failed;
    const std::filesystem::space_info space = std::filesystem::space(directory, failed);
    if (!failed) options.nvme_disk_bytes += space.capacity;
  }
  options.backend = backend_.get();
  options.written_by = checkpoint::WrittenBy(backend_->name(), backend_->device_class());
  // The cpu backend computes, alone or together with a device.
  if (backend_->space() == kernels::Space::kHost) {
    options.instruction_set = kernels::ChosenIsa();
    options.compute_threads = config.threads();
  }
  options.staging_bytes = config.staging_bytes();
  options.min_chunk_bytes = kMinChunkBytes;
  files_.checkpoint_dir = config.checkpoint_dir();
  KAON_ASSIGN_OR_RETURN(const config::Durability durability,
                        config::ParseDurability(config.durability()));
  options.durability = durability.mode;
  options.interval_steps = durability.interval_steps;
  options.pull_cache = host_tier_.get();
  // The other modes write no gradients.
  if (durability.mode == v1::DURABILITY_MODE_JOURNAL) options.staging = host_tier_.get();
  if (durability.mode == v1::DURABILITY_MODE_INTERVAL) files_.snapshot_dir = config.data_dir();
  KAON_RETURN_IF_ERROR(durability.mode == v1::DURABILITY_MODE_NONE
                           ? BuildInMemory(config, std::move(options))
                           : BuildOnDisk(config, std::move(options)));
  // As a supervisor ends it: RunServer waits for the signal.
  loop_->Start(*journal_, snapshots_.get(), [] { kill(getpid(), SIGTERM); });
  KAON_RETURN_IF_ERROR(StartSessions(config));
  data_service_ = std::make_unique<ShardDataService>(
      *loop_, nccl_endpoint_.get(), config.host_memory_bytes() + config.staging_bytes());
  nccl_service_ = std::make_unique<ShardNcclService>(*loop_, nccl_endpoint_.get(), *data_service_);
  local_service_ = std::make_unique<ShardLocalService>(shm_endpoint_.get(), counts_);
  control_service_ = std::make_unique<ShardControlService>(*loop_, nccl_endpoint_.get());
  return absl::OkStatus();
}

absl::Status ShardServer::BuildTiers(const v1::ShardConfig& config) {
  uint64_t bytes = config.device_memory_bytes();
  if (backend_->space() == kernels::Space::kHost) {
    if (bytes > 0 && config.backend() == "cpu") {
      return absl::InvalidArgumentError(
          absl::StrCat("device_memory_bytes is ", bytes, ", must be 0: backend ", config.backend(),
                       " computes in host memory, which host_memory_bytes bounds"));
    }
    host_tier_ = std::make_unique<tier::HostTier>(*backend_, config.host_memory_bytes(),
                                                  ReservedBytes(config));
    store_ = std::make_unique<tier::TieredStore>(*host_tier_);
    return absl::OkStatus();
  }
  if (!config.nvme_dirs().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "nvme_dirs is set, must be empty: ", backend_->memory_tier(), " holds the tensors, and ",
        "parameters on a disk are stepped in host memory; set memory_tier to host"));
  }
  host_tier_ = std::make_unique<tier::HostTier>(config.host_memory_bytes(), ReservedBytes(config));
  const uint64_t capacity = backend_->capacity_bytes();
  if (capacity > 0 && bytes > capacity) {
    return absl::InvalidArgumentError(absl::StrCat("device_memory_bytes is ", bytes,
                                                   ", must be at most ", capacity, ", which ",
                                                   backend_->memory_tier(), " has free"));
  }
  // The rest is for contexts, libraries and the copies of snapshots.
  if (bytes == 0) bytes = capacity > 0 ? capacity / 10 * 9 : std::numeric_limits<uint64_t>::max();
  device_tier_ = std::make_unique<tier::DeviceTier>(*backend_, bytes);
  store_ = std::make_unique<tier::TieredStore>(*device_tier_);
  return absl::OkStatus();
}

absl::Status ShardServer::BuildNvme(const v1::ShardConfig& config) {
  if (config.nvme_dirs().empty()) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(const disk::FileIo io, disk::ParseFileIo(config.nvme_io()));
  std::vector<disk::BlockFile*> files;
  for (const std::string& directory : config.nvme_dirs()) {
    KAON_ASSIGN_OR_RETURN(
        std::unique_ptr<disk::BlockFile> opened,
        disk::OpenBlockFile(absl::StrCat(directory, "/", kNvmeFile), config.nvme_bytes(), io));
    files.push_back(opened.get());
    nvme_files_.push_back(std::move(opened));
  }
  // The process ends as in a crash. The next start has the state from data_dir.
  nvme_ = std::make_unique<tier::NvmeTier>(
      files, *backend_, config.nvme_staging_bytes(),
      [](const absl::Status& status) { LOG(FATAL) << "nvme_dirs: " << status; });
  return absl::OkStatus();
}

absl::Status ShardServer::BuildInMemory(const v1::ShardConfig& config, ShardCore::Options options) {
  KAON_ASSIGN_OR_RETURN(const bool holds_journal, directory_->HoldsJournal());
  if (holds_journal) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data_dir ", config.data_dir(), " holds a journal, durability is ", config.durability(),
        ", must be the one it was written in, or the directory another one"));
  }
  if (marker_->held_state()) {
    // Rule 5: "in `none` a restarted shard is DATA_LOSS, never a voter."
    BuildLost(std::move(options),
              absl::StrCat("this shard restarted, its state was in memory only (durability mode ",
                           "none); ", marker_->path(), " says that it had voted"));
    return absl::OkStatus();
  }
  MakeLoop(std::move(options));
  journal_ = std::make_unique<journal::MemoryJournal>(&*marker_);
  return absl::OkStatus();
}

absl::Status ShardServer::BuildOnDisk(const v1::ShardConfig& config, ShardCore::Options options) {
  if (marker_->held_state()) {
    BuildLost(std::move(options),
              absl::StrCat("this shard's state was in memory only (durability mode none) when it ",
                           "voted; ", marker_->path(), " says so"));
    return absl::OkStatus();
  }
  const absl::Status recovered = Recover(config, options);
  // A device that cannot be read now may be readable at the next start (P18).
  if (disk::IsDeviceError(recovered)) return recovered;
  if (absl::IsDataLoss(recovered)) {
    // P8: "found before use, then ... refused, naming file, block, step."
    BuildLost(std::move(options), absl::StrCat("the journal in ", config.data_dir(),
                                               " cannot be used: ", recovered.message()));
    return absl::OkStatus();
  }
  return recovered;
}

void ShardServer::MakeLoop(ShardCore::Options options) {
  // The last loop releases its memory before the next one reserves any.
  loop_.reset();
  loop_ = std::make_unique<StepLoop>(std::move(options), files_, counts_, health_);
}

absl::StatusOr<RestoredSnapshot> ShardServer::Restore(disk::Directory& files,
                                                      const ShardCore::Options& options,
                                                      bool allow_other_build) {
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id, journal::ReadIdentity(files));
  SnapshotDirectory directory(files, id.value_or(journal::DirectoryId()));
  KAON_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions, directory.List());
  if (!id.has_value() && !positions.empty()) {
    return absl::DataLossError(absl::StrCat(files.path(), "/", journal::kIdentityFile,
                                            " is missing, there is a snapshot of position ",
                                            positions.front()));
  }
  if (!positions.empty())
    KAON_RETURN_IF_ERROR(
        CheckMode(directory, positions.front(), options.durability, options.interval_steps));
  if (!positions.empty() && !allow_other_build) {
    KAON_RETURN_IF_ERROR(CheckBuild(directory, positions.front(), options.written_by));
  }
  const auto restore = [&](const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
    MakeLoop(options);
    return loop_->Restore(snapshot, read);
  };
  KAON_ASSIGN_OR_RETURN(RestoredSnapshot restored, RestoreNewest(directory, restore));
  for (const std::string& skipped : restored.skipped) {
    counts_.Add(monitor::Event::kDamagedFileSkipped);
    LOG(ERROR) << skipped;
  }
  if (restored.position == 0) MakeLoop(options);
  if (options.interval_steps > 0) {
    KAON_ASSIGN_OR_RETURN(std::vector<v1::SnapshotPoint> points,
                          ListPoints(directory, restored.position));
    loop_->RestoreSnapshots(std::move(points));
  }
  return restored;
}

absl::Status ShardServer::Recover(const v1::ShardConfig& config,
                                  const ShardCore::Options& options) {
  const absl::Time start = SteadyNow();
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<disk::PosixDirectory> files,
                        disk::PosixDirectory::At(config.data_dir()));
  absl::StatusOr<bool> claimed = IsClaimed(*files, options.written_by);
  if (absl::IsFailedPrecondition(claimed.status()) && config.allow_other_build()) claimed = false;
  KAON_RETURN_IF_ERROR(claimed.status());
  // Once allowed, a directory of another build belongs to this one, its snapshots included.
  KAON_ASSIGN_OR_RETURN(const RestoredSnapshot restored,
                        Restore(*files, options, *claimed || config.allow_other_build()));
  if (!*claimed) KAON_RETURN_IF_ERROR(Claim(*files, options.written_by));
  const absl::Time snapshot_read = SteadyNow();
  const uint64_t journal_bytes = config.snapshot_journal_bytes();
  journal::DiskJournal::Options journal;
  journal.log.id_if_created = journal::RandomDirectoryId();
  journal.log.snapshot_position = restored.position;
  // The journal removes whole segments: they are smaller than the growth between snapshots.
  journal.log.segment_bytes = std::max(kLeastSegmentBytes, journal_bytes / 4);
  if (journal_bytes == 0) journal.log.segment_bytes = kSegmentBytes;
  KAON_RETURN_IF_ERROR(SetSegmentBytes(journal.log.segment_bytes));
  journal.on_room = OnRoom("journal", monitor::Event::kJournalRetry);
  journal.on_gradient_write = [loop = loop_.get()](bool writing) {
    loop->OnGradientWrite(writing);
  };
  // Only decisions are written between two snapshots, and a snapshot waits for its own.
  if (options.interval_steps > 0) journal.idle_delay = absl::Milliseconds(1);
  uint64_t replayed_bytes = 0;
  KAON_ASSIGN_OR_RETURN(
      std::unique_ptr<journal::DiskJournal> opened,
      journal::DiskJournal::Open(directory_->files(), journal, [&](const journal::Entry& entry) {
        const auto* slice = std::get_if<journal::GradientSlice>(&entry);
        if (slice != nullptr && slice->position > restored.position) {
          replayed_bytes += slice->values.size() * sizeof(float);
        }
        return loop_->Replay(entry);
      }));
  const v1::JournalStatus status = opened->Status();
  if (!status.torn_tail().empty()) {
    counts_.Add(monitor::Event::kTornTailCut);
    LOG(WARNING) << "journal: cut off " << status.torn_tail();
  }
  const std::string& history_problem = opened->found().history_problem;
  if (!history_problem.empty()) {
    counts_.Add(monitor::Event::kDamagedFileSkipped);
    LOG(WARNING)
        << "journal: " << history_problem << "; the shard goes on without these records "
        << "of its history, which no state depends on. The next snapshot replaces the file";
  }
  LOG(INFO) << "recovery: snapshot of position " << restored.position << " with " << restored.bytes
            << " bytes read in " << absl::ToDoubleSeconds(snapshot_read - start)
            << " s, journal of " << status.recovered_entries() << " entries and "
            << opened->found().bytes << " bytes read in "
            << absl::ToDoubleSeconds(SteadyNow() - snapshot_read) << " s, at position "
            << loop_->machine().applied_position() << ", "
            << loop_->machine().applied_position() - restored.position << " of them replayed";
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*files));
  SnapshotThread::Options snapshots;
  snapshots.journal_bytes = journal_bytes;
  snapshots.appended_bytes = opened->appended_bytes();
  snapshots.replayed_bytes = replayed_bytes;
  snapshots.written_by = options.written_by;
  snapshots.truncate = [raw = opened.get()](uint64_t position) { raw->Truncate(position); };
  journal_ = std::move(opened);
  if (options.interval_steps > 0) UseInterval(options.interval_steps, snapshots);
  snapshots_ = std::make_unique<SnapshotThread>(std::move(files), id.value(), restored,
                                                std::move(snapshots));
  return absl::OkStatus();
}

void ShardServer::UseInterval(uint32_t steps, SnapshotThread::Options& snapshots) {
  const ShardMachine& machine = loop_->machine();
  auto journal = std::make_unique<journal::IntervalJournal>(
      std::move(journal_), journal::IntervalSchedule(steps),
      journal::IntervalJournal::Start{machine.timeline(), machine.applied_step(),
                                      machine.weights_loaded()});
  snapshots.schedule = journal::IntervalSchedule(steps);
  snapshots.on_room = OnRoom("snapshots", monitor::Event::kSnapshotRetry);
  snapshots.on_snapshot = [loop = loop_.get(), raw = journal.get()](const v1::SnapshotPoint& point,
                                                                    uint64_t timeline) {
    // The loop comes first: a coordinator hears of the snapshot before it hears of a vote that
    // waited for it.
    loop->OnSnapshot(point, timeline);
    raw->OnSnapshot(timeline, point.step());
  };
  journal_ = std::move(journal);
}

std::function<void(const absl::Status& status)> ShardServer::OnRoom(std::string cause,
                                                                    monitor::Event retry) {
  return [this, cause = std::move(cause), retry](const absl::Status& status) {
    if (!status.ok()) counts_.Add(retry);
    health_.SetReason(cause, status.ok() ? "" : std::string(status.message()));
  };
}

void ShardServer::BuildLost(ShardCore::Options options, const std::string& why) {
  options.data_loss = config::LossOfShard(why);
  health_.SetReason("state", options.data_loss);
  MakeLoop(std::move(options));
  // Promises need not be durable: a shard that lost its state never votes.
  journal_ = std::make_unique<journal::MemoryJournal>(nullptr);
}

absl::Status ShardServer::StartSessions(const v1::ShardConfig& config) {
  nccl_endpoint_ =
      NcclEndpoint::Start(link_, config.nccl(), DeviceOrdinal(config), backend_->memory_tier());
  if (config.shm_sessions() == 0) return absl::OkStatus();
  ShmEndpoint::Options options;
  options.max_sessions = config.shm_sessions();
  options.directory = config.shm_dir();
  options.other_users.assign(config.shm_uids().begin(), config.shm_uids().end());
  absl::StatusOr<std::unique_ptr<ShmEndpoint>> endpoint = ShmEndpoint::Start(
      std::move(options), {&loop_->accumulator(), &loop_->publisher(), &counts_});
  // A sandbox may have no abstract sockets. Only a directory that was configured must work.
  if (!endpoint.ok() && config.shm_dir().empty()) {
    LOG(WARNING) << "no sessions over shared memory: " << endpoint.status();
    return absl::OkStatus();
  }
  KAON_ASSIGN_OR_RETURN(shm_endpoint_, std::move(endpoint));
  return absl::OkStatus();
}

absl::Status ShardServer::Listen(const v1::ShardConfig& config) {
  if (!config.audit_file().empty()) {
    KAON_ASSIGN_OR_RETURN(audit_, monitor::AuditLog::Open(config.audit_file()));
    counts_.set_audit(audit_.get());
  }
  process_service_ = std::make_unique<process::ProcessService>("kaon-shard", config_, counts_);
  process::EnableStandardServices();
  grpc::ServerBuilder builder;
  // A last fuse. Any client with a certificate may send messages of a registration's size. gRPC as
  // a whole stops reading before they exhaust the memory of the process.
  grpc::ResourceQuota quota("kaon-shard");
  quota.Resize(config.staging_bytes() + config::kTransportBytes);
  builder.SetResourceQuota(quota);
  KAON_ASSIGN_OR_RETURN(listener_,
                        listener::AddSecuredPort(builder, config.tls(), config.listen(), counts_));
  listener_->AddService(builder, *data_service_, v1::ShardData::service_full_name());
  listener_->AddService(builder, *local_service_, v1::ShardLocal::service_full_name());
  listener_->AddService(builder, *nccl_service_, v1::ShardNccl::service_full_name());
  listener_->AddService(builder, *control_service_, v1::ShardControl::service_full_name());
  listener_->AddService(builder, *process_service_, v1::ServerProcess::service_full_name());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::FailedPreconditionError("gRPC cannot start a server");
  KAON_RETURN_IF_ERROR(
      listener_->Start(kOwnDescriptors + config.shm_sessions() * kDescriptorsOfSession +
                           (config.metrics_address().empty() ? 0 : metrics::kHttpDescriptors),
                       config.has_tls()));
  port_ = listener_->port();
  process::ShowServing(
      *server_, {v1::ShardControl::service_full_name(), v1::ServerProcess::service_full_name()});
  health_.ShowIn(server_->GetHealthCheckService());
  LOG(INFO) << "shard serves on port " << port_ << " with " << backend_->name() << ", "
            << config.host_memory_bytes() << " bytes of host memory"
            << (device_tier_ == nullptr ? ""
                                        : absl::StrCat(" and ", device_tier_->capacity_bytes(),
                                                       " bytes of ", backend_->memory_tier()));
  return absl::OkStatus();
}

void ShardServer::GuardMemory() {
  listener_->GuardMemory(GuardedBytes(config_, backend_resident_bytes_));
}

ShardServer::~ShardServer() { Stop(absl::ZeroDuration()); }

void ShardServer::Shutdown() { Stop(kLastSnapshot); }

void ShardServer::Stop(absl::Duration last_snapshot) {
  if (snapshots_ != nullptr) snapshots_->StopWaiting();
  // The loop stops first: every open stream then ends by itself.
  if (loop_ != nullptr) loop_->Stop();
  if (monitor_ != nullptr) monitor_->Stop();
  if (shm_endpoint_ != nullptr) shm_endpoint_->Stop();
  if (nccl_endpoint_ != nullptr) nccl_endpoint_->Stop();
  if (listener_ != nullptr) listener_->Stop();
  if (server_ != nullptr) server_->Shutdown(proto::DeadlineAfter(kShutdownGrace));
  health_.ShowIn(nullptr);
  // Joins gRPC's calls: no service runs afterwards.
  server_.reset();
  if (snapshots_ != nullptr && last_snapshot > absl::ZeroDuration()) {
    loop_->TakeLastSnapshot(SteadyNow() + last_snapshot);
  }
  // Snapshots stop before the journal, which they truncate and which reports durable entries to
  // them until then.
  if (snapshots_ != nullptr) snapshots_->Stop();
  journal_.reset();
}

}  // namespace kaon::shard
