// Composition root of a shard: builds tiers, backend, journal, step loop and services from a
// configuration, and serves them on one port. Owned by main or by a test; one thread at a time.
#ifndef KAON_SERVER_SHARD_SHARD_SERVER_H_
#define KAON_SERVER_SHARD_SHARD_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/config.pb.h"
#include "kernels/backend.h"
#include "server/disk/block_file.h"
#include "server/journal/incarnation_marker.h"
#include "server/journal/journal.h"
#include "server/journal/shard_directory.h"
#include "server/listener/listener.h"
#include "server/monitor/audit_log.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"
#include "server/process/process_service.h"
#include "server/shard/complete_config.h"
#include "server/shard/monitor/shard_monitor.h"
#include "server/shard/shard_files.h"
#include "server/shard/snapshot_restore.h"
#include "server/shard/snapshot_thread.h"
#include "server/shard/step_loop.h"
#include "server/shard/transport/nccl_endpoint.h"
#include "server/shard/transport/shard_service.h"
#include "server/shard/transport/shm_endpoint.h"
#include "server/tier/device_tier.h"
#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/tiered_store.h"

namespace grpc {
class Server;
}

namespace kaon::shard {

class ShardServer {
 public:
  // Checks all that can be checked while another process serves on the same address and data_dir.
  // Returns a server that is ready to serve.
  //   INVALID_ARGUMENT     a field of the configuration; names it, its value and range
  //   FAILED_PRECONDITION  the address, the certificates, a directory or a limit of the system
  //                        cannot be used
  //   NOT_FOUND            a missing backend, or a certificate file that cannot be read
  static absl::StatusOr<std::unique_ptr<ShardServer>> Prepare(v1::ShardConfig config);
  // Recovers data_dir and serves. Call it once. FAILED_PRECONDITION if the port or data_dir is in
  // use, or another build or durability mode wrote data_dir; UNAVAILABLE if port_file cannot be
  // written.
  absl::Status Serve();
  // Prepares a server and serves. Errors of both.
  static absl::StatusOr<std::unique_ptr<ShardServer>> Start(v1::ShardConfig config);
  // Receives gradients over this link, in place of the one that ShardConfig.nccl names. Call it
  // before Serve. Its communicators share it.
  void UseLink(std::shared_ptr<kernels::DeviceLink> link) { link_ = std::move(link); }
  // Shuts down without a last snapshot.
  ~ShardServer();

  // Ends connections that take more memory than the budget has. Call it after Serve, in a process
  // that has nothing but this server.
  void GuardMemory();
  // Ends every call and stops serving. Writes a last snapshot if that takes at most 20 s: the next
  // start then replays little. Idempotent.
  void Shutdown();

  int port() const { return port_; }
  // Returns the port of metrics_address; 0 without one.
  int metrics_port() const { return monitor_ == nullptr ? 0 : monitor_->port(); }

 private:
  ShardServer() = default;
  absl::Status Build(const v1::ShardConfig& config);
  absl::Status BuildBackend(const v1::ShardConfig& config);
  // Builds the memory of tensors, in the space that the backend computes on.
  absl::Status BuildTiers(const v1::ShardConfig& config);
  // Opens the files of the parameters on disks.
  absl::Status BuildNvme(const v1::ShardConfig& config);
  // Each builds the journal of one durability mode, and the loop that continues from it.
  absl::Status BuildInMemory(const v1::ShardConfig& config, ShardCore::Options options);
  absl::Status BuildOnDisk(const v1::ShardConfig& config, ShardCore::Options options);
  // Replaces the loop by one that has seen nothing.
  void MakeLoop(ShardCore::Options options);
  // Recovers the shard from its newest snapshot and the journal behind it. DATA_LOSS: they cannot
  // be used.
  absl::Status Recover(const v1::ShardConfig& config, const ShardCore::Options& options);
  // Restores the newest snapshot. FAILED_PRECONDITION if another durability mode wrote it, or
  // another build without `allow_other_build`.
  absl::StatusOr<RestoredSnapshot> Restore(disk::Directory& files,
                                           const ShardCore::Options& options,
                                           bool allow_other_build);
  // Turns what was built for mode journal into mode interval(steps).
  void UseInterval(uint32_t steps, SnapshotThread::Options& snapshots);
  // Returns a listener for a journal, or for snapshots, that votes wait for. While the status is
  // not OK the service takes no pushes for that cause, and each such status counts as a retry.
  std::function<void(const absl::Status& status)> OnRoom(std::string cause, monitor::Event retry);
  // Builds a loop that reports `why` and never votes.
  void BuildLost(ShardCore::Options options, const std::string& why);
  // Starts sessions over shared memory, and over NCCL if there is a link.
  absl::Status StartSessions(const v1::ShardConfig& config);
  absl::Status Listen(const v1::ShardConfig& config);
  void Stop(absl::Duration last_snapshot);

  // Complete and checked.
  v1::ShardConfig config_;
  // Members depend on those before them.
  // Null without audit_file.
  std::unique_ptr<monitor::AuditLog> audit_;
  monitor::EventCounts counts_;
  // Health of the service that takes pushes.
  monitor::ServiceHealth health_{v1::ShardData::service_full_name()};
  ShardFiles files_;
  std::unique_ptr<kernels::Backend> backend_;
  // Resident memory of the process once it had the backend.
  uint64_t backend_resident_bytes_ = 0;
  std::unique_ptr<tier::HostTier> host_tier_;
  // Null if the backend computes in host memory.
  std::unique_ptr<tier::DeviceTier> device_tier_;
  std::unique_ptr<tier::TieredStore> store_;
  // Empty and null without nvme_dirs.
  std::vector<std::unique_ptr<disk::BlockFile>> nvme_files_;
  std::unique_ptr<tier::NvmeTier> nvme_;
  std::unique_ptr<journal::ShardDirectory> directory_;
  std::optional<journal::IncarnationMarker> marker_;
  std::unique_ptr<StepLoop> loop_;
  // Null in mode none.
  std::unique_ptr<SnapshotThread> snapshots_;
  // Borrows gradients of the loop, and is destroyed before it.
  std::unique_ptr<journal::Journal> journal_;
  // Null without shm_sessions. Destroyed before the accumulator that its sessions push to.
  std::unique_ptr<ShmEndpoint> shm_endpoint_;
  // Null without NCCL.
  std::shared_ptr<kernels::DeviceLink> link_;
  std::unique_ptr<NcclEndpoint> nccl_endpoint_;
  std::unique_ptr<ShardDataService> data_service_;
  std::unique_ptr<ShardLocalService> local_service_;
  std::unique_ptr<ShardNcclService> nccl_service_;
  std::unique_ptr<ShardControlService> control_service_;
  std::unique_ptr<process::ProcessService> process_service_;
  // Hears of calls from the server, and outlives it.
  std::unique_ptr<listener::Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  // Null without metrics_address.
  std::unique_ptr<ShardMonitor> monitor_;
  int port_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_SERVER_H_
