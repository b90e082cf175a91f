// A complete coordinator in one object: the state machine on its thread, a link to every shard, and
// the gRPC server. It is the composition root, owned by main or by a test that runs a cluster in
// its own process. Call Start, then Shutdown, from one thread. gRPC's threads serve the calls.
#ifndef KAON_SERVER_COORDINATOR_COORDINATOR_SERVER_H_
#define KAON_SERVER_COORDINATOR_COORDINATOR_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "server/coordinator/checkpoint/checkpoint_keeper.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/machine_watch.h"
#include "server/coordinator/monitor/coordinator_monitor.h"
#include "server/coordinator/service/admin_service.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/coordinator/service/coordinator_service.h"
#include "server/coordinator/shard_link.h"
#include "server/coordinator/trace/step_traces.h"
#include "server/listener/listener.h"
#include "server/monitor/audit_log.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"
#include "server/process/process_service.h"

namespace kaon::coordinator {

// Fills in the defaults. INVALID_ARGUMENT names the field, its value and its range.
absl::StatusOr<v1::CoordinatorConfig> CompleteConfig(v1::CoordinatorConfig config);

class CoordinatorServer {
 public:
  // Checks all that can be checked while another process serves on the same address. Returns a
  // server that is ready to serve.
  //   INVALID_ARGUMENT     a field of the configuration; names it, its value and range
  //   FAILED_PRECONDITION  an address that is not loopback, without certificates; certificates, a
  //                        directory or an address that cannot be used; a limit of the system
  //   NOT_FOUND            a certificate file that cannot be read
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Prepare(v1::CoordinatorConfig config);
  // Returns once the port accepts calls. Shards may start later. Call it once.
  //   FAILED_PRECONDITION  a port that is in use; a limit of open files that is too low
  //   UNAVAILABLE          port_file cannot be written
  absl::Status Serve();
  // Prepares a server and serves. Errors of both.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(v1::CoordinatorConfig config);
  // Creates an idle server; use Start instead.
  CoordinatorServer() = default;
  ~CoordinatorServer();

  // Ends connections that take more memory than memory_bytes. Call it after Serve, in a process
  // that has nothing but this server.
  void GuardMemory() { listener_->GuardMemory(config_.memory_bytes()); }
  // Ends every call with UNAVAILABLE, then stops everything that the server started. Idempotent.
  void Shutdown();
  int port() const { return port_; }
  // Returns the port of metrics_address; 0 without one.
  int metrics_port() const { return monitor_ == nullptr ? 0 : monitor_->port(); }

 private:
  absl::Status Connect();
  absl::Status Listen();
  void RunMachine();
  void ReadRecord(int shard, uint64_t position);
  void AskAwaited(const ReadAwaited& read);
  void FinishCheckpointRun(FinishCheckpoint finish);

  v1::CoordinatorConfig config_;
  std::string address_;
  int port_ = 0;
  // Null without audit_file.
  std::unique_ptr<monitor::AuditLog> audit_;
  monitor::EventCounts counts_;
  // Health of the service that workers call.
  monitor::ServiceHealth health_{v1::Coordinator::service_full_name()};
  MachineWatch watch_{health_, counts_};
  // Answers of the links refer to it.
  std::unique_ptr<ClusterQueries> queries_;
  // Null without traces_address. The same.
  std::unique_ptr<StepTraces> traces_;
  std::vector<std::unique_ptr<ShardLink>> links_;
  std::unique_ptr<MachineLoop> loop_;
  std::unique_ptr<CheckpointKeeper> keeper_;
  std::unique_ptr<CoordinatorService> coordinator_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<process::ProcessService> process_service_;
  // Outlives server_, which reports calls to it.
  std::unique_ptr<listener::Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  // Null without metrics_address.
  std::unique_ptr<CoordinatorMonitor> monitor_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_COORDINATOR_SERVER_H_
