#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/certificate_check.h"
#include "kernels/backend.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/backend_report.h"
#include "server/admin_cli/checkpoint_command.h"
#include "server/admin_cli/digest_command.h"
#include "server/admin_cli/effective_report.h"
#include "server/admin_cli/events_report.h"
#include "server/admin_cli/form_times.h"
#include "server/admin_cli/group_command.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/parameter_command.h"
#include "server/admin_cli/phases_report.h"
#include "server/admin_cli/report.h"
#include "server/admin_cli/verify_numerics.h"

namespace kaon::admin_cli {
namespace {

// Prints an answer in the requested format. Returns the exit status.
template <typename T>
int Print(const Options& options, const absl::StatusOr<T>& answer, Json (*json)(const T&),
          std::string (*text)(const T&)) {
  if (!answer.ok()) {
    std::cerr << "kaonctl: " << answer.status() << "\n";
    return 1;
  }
  if (options.json) {
    std::cout << json(*answer).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    std::cout << text(*answer);
  }
  return 0;
}

// Runs a command that computes on this machine.
int RunOnBackend(const Options& options) {
  kernels::BackendOptions wanted;
  wanted.name = options.backend;
  wanted.gemm = options.gemm;
  wanted.isa = options.isa;
  // Use the default number of threads of a shard when time is measured.
  if (options.command == Command::kMeasureForms) {
    wanted.threads = std::clamp<int>(std::thread::hardware_concurrency(), 1, kernels::kMaxThreads);
  }
  const absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::CreateBackend(wanted);
  if (!backend.ok()) {
    std::cerr << "kaonctl: " << backend.status() << "\n";
    return 1;
  }
  if (options.command == Command::kMeasureForms) {
    return Print<FormTimes>(options, MeasureForms(**backend), FormTimesJson, FormTimesText);
  }
  const NumericsReport report = VerifyNumerics(conformance::NumericsCases(), **backend, std::cerr);
  Print<NumericsReport>(options, report, NumericsJson, NumericsText);
  return NumFailed(report) == 0 ? 0 : 1;
}

int RunOffline(const Options& options) {
  switch (options.command) {
    case Command::kCheckpointExport:
      return Print(options, ExportCheckpoint(options), ExportedJson, ExportedText);
    case Command::kCheckpointImport:
      return Print(options, ImportCheckpoint(options), CheckpointJson, CheckpointText);
    default:
      return RunOnBackend(options);
  }
}

absl::StatusOr<BackendFacts> AskBackend(const AdminCalls& calls) {
  BackendFacts facts;
  KAON_ASSIGN_OR_RETURN(facts.status, calls.GetStatus());
  // Shards exist even before a job is registered.
  if (facts.status.job().empty()) return facts;
  KAON_ASSIGN_OR_RETURN(facts.job, calls.DescribeJob());
  KAON_ASSIGN_OR_RETURN(facts.parameters, calls.ListParameters());
  return facts;
}

// Any role may ask for health.
absl::Status CheckFiles(const Options& options) {
  const bool any = options.command == Command::kHealth;
  const client::CertificateUse use = {
      .roles = any ? client::AllRoles() : std::vector<proto::Role>{proto::Role::kAdmin},
      .calls = true};
  KAON_ASSIGN_OR_RETURN(const std::string warning, client::CheckCertificates(options.tls, use));
  if (!warning.empty()) std::cerr << "kaonctl: warning: " << warning << "\n";
  return absl::OkStatus();
}

int Run(const Options& options) {
  if (IsOffline(options.command)) return RunOffline(options);
  if (const absl::Status usable = CheckFiles(options); !usable.ok()) {
    std::cerr << "kaonctl: " << usable.message() << "\n";
    return 2;
  }
  const AdminCalls calls(options);
  switch (options.command) {
    case Command::kStatus:
      return Print(options, calls.GetStatus(), StatusJson, StatusText);
    case Command::kStatusEvents:
      return Print(options, calls.GetStatus(), StatusJson, EventsText);
    case Command::kJobShow:
      return Print(options, calls.DescribeJob(), JobJson, JobText);
    case Command::kJobEffective:
      return Print(options, calls.DescribeJob(), EffectiveJson, EffectiveText);
    case Command::kParameters:
      return Print(options, calls.ListParameters(), ParametersJson, ParametersText);
    case Command::kParameterStats:
      return Print(options, calls.GetParameterStats(), ParameterStatsJson, ParameterStatsText);
    case Command::kParameterDiagnostics:
      return Print(options, calls.GetParameterDiagnostics(), ParameterDiagnosticsJson,
                   ParameterDiagnosticsText);
    case Command::kSteps:
      return Print(options, calls.StepHistory(), StepsJson, StepsText);
    case Command::kStepPhases:
      return Print(options, calls.StepHistory(), PhasesJson, PhasesText);
    case Command::kDigest:
      return Print(options,
                   AskDigests([&calls] { return calls.GetStatus(); },
                              [] { PauseFor(absl::Milliseconds(50)); }),
                   DigestsJson, DigestsText);
    case Command::kBackend:
      return Print(options, AskBackend(calls), BackendJson, BackendText);
    case Command::kGroupSet:
      return Print(options, SetGroup(calls, options), GroupJson, GroupText);
    case Command::kCheckpointList:
      return Print(options, calls.ListCheckpoints(), CheckpointsJson, CheckpointsText);
    case Command::kCheckpointVerify:
      return Print(options, calls.VerifyCheckpoint(), CheckpointJson, CheckpointText);
    case Command::kCheckpointCreate:
      return Print(options, calls.CreateCheckpoint(), CheckpointJson, CheckpointText);
    case Command::kCheckpointRestore:
      return Print(options, RestoreCheckpoint(calls, options), RestoredJson, RestoredText);
    default:
      break;
  }
  const absl::StatusOr<std::vector<HealthRow>> rows = calls.CheckHealth();
  int status = Print(options, rows, HealthJson, HealthText);
  for (const HealthRow& row : *rows) {
    if (!row.serving) status = 1;
  }
  return status;
}

}  // namespace
}  // namespace kaon::admin_cli

int main(int argc, char** argv) {
  const kaon::admin_cli::ParsedCommandLine parsed = kaon::admin_cli::ParseCommandLine(argc, argv);
  if (!parsed.options.has_value()) {
    (parsed.exit_status == 0 ? std::cout : std::cerr) << parsed.text;
    return parsed.exit_status;
  }
  // gRPC's own log would mix with the line that states the error.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return kaon::admin_cli::Run(*parsed.options);
}
