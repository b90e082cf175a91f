// The kaon-train program: composition root and signal handling.
#include <signal.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client/train/local_cluster.h"
#include "client/train/service_session.h"
#include "client/train/stop_gate.h"
#include "client/train/train_options.h"
#include "client/train/trainer.h"
#include "client/transport/certificate_check.h"
#include "proto/chunk_memory.h"
#include "proto/failpoint.h"
#include "proto/identity.h"
#include "proto/program_log.h"
#include "proto/status_macros.h"

namespace kaon::train {
namespace {

constexpr int kExitStopped = 130;

// Set by the signal handler, which has no other way to report.
std::atomic<bool> stop_signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void HandleStopSignal(int) { stop_signalled.store(true); }

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = HandleStopSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

absl::StatusOr<std::unique_ptr<LocalCluster>> MakeLocalCluster(const TrainOptions& options,
                                                               const TrainingText& text) {
  kernels::BackendOptions backend_options;
  backend_options.gemm = options.gemm;
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> backend,
                        kernels::CreateBackend(backend_options));
  KAON_ASSIGN_OR_RETURN(
      LocalOptimizer optimizer,
      LocalOptimizer::Create(MakeJobDefinition(options, text.model), std::move(backend),
                             InitialWeights(text.model, options.seed)));
  KAON_RETURN_IF_ERROR(optimizer.CheckMultipliers({1, options.group_multipliers}));
  return std::make_unique<LocalCluster>(std::move(optimizer), options.workers);
}

ServiceSessionOptions ServiceOptionsOf(const TrainOptions& options, const ModelShape& model,
                                       uint32_t rank) {
  ServiceSessionOptions service;
  service.client.coordinators = options.coordinators;
  service.client.transport = options.transport.value_or(service.client.transport);
  service.client.nccl = options.nccl;
  service.client.nccl_device = options.nccl_device;
  service.client.tls = TlsFilesOf(options, rank);
  service.job = MakeJobDefinition(options, model);
  service.rank = rank;
  return service;
}

absl::StatusOr<RunSummary> Train(const TrainOptions& options) {
  KAON_ASSIGN_OR_RETURN(const TrainingText text, ReadTrainingText(options));
  StopGate gate(stop_signalled);
  TrainingRun run = {options, text, nullptr, nullptr, gate, std::cout};
  std::unique_ptr<LocalCluster> cluster;
  if (options.local) {
    KAON_ASSIGN_OR_RETURN(cluster, MakeLocalCluster(options, text));
    run.make_session = [&cluster](uint32_t rank) { return cluster->MakeSession(rank); };
    run.newton_schulz_calls = [&cluster] { return cluster->newton_schulz_calls(); };
  } else {
    run.make_session = [&](uint32_t rank) -> absl::StatusOr<std::unique_ptr<TrainingSession>> {
      return ServiceSession::Create(ServiceOptionsOf(options, text.model, rank), gate);
    };
  }
  return RunTraining(run);
}

// Checks the files of the ranks in this process. The client library warns about certificates that
// expire soon.
absl::Status CheckFiles(const TrainOptions& options) {
  if (options.local) return absl::OkStatus();
  const uint32_t first = options.rank.value_or(0);
  const uint32_t end = options.rank.has_value() ? first + 1 : options.workers;
  for (uint32_t rank = first; rank < end; ++rank) {
    KAON_RETURN_IF_ERROR(client::CheckCertificates(TlsFilesOf(options, rank),
                                                   {.roles = {proto::Role::kWorker}, .calls = true})
                             .status());
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  proto::KeepChunkMemory();
  proto::StartLog(argv[0]);
  const ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (!parsed.options.has_value()) {
    (parsed.exit_status == 0 ? std::cout : std::cerr) << parsed.text;
    return parsed.exit_status;
  }
  if (const absl::Status armed = ArmFailpointOfEnvironment(); !armed.ok()) {
    std::cerr << "kaon-train: " << armed.message() << std::endl;
    return 2;
  }
  if (const absl::Status usable = CheckFiles(*parsed.options); !usable.ok()) {
    std::cerr << "kaon-train: " << usable.message() << std::endl;
    return 2;
  }
  InstallSignalHandlers();
  const absl::StatusOr<RunSummary> summary = Train(*parsed.options);
  if (!summary.ok()) {
    std::cerr << "kaon-train: " << summary.status() << std::endl;
    return 1;
  }
  std::cout << FormatSummary(*summary) << "SUMMARY " << SummaryJson(*summary) << std::endl;
  return stop_signalled.load() ? kExitStopped : 0;
}

}  // namespace
}  // namespace kaon::train

int main(int argc, char** argv) { return kaon::train::Main(argc, argv); }
