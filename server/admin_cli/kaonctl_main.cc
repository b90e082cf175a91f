#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/transport/certificate_check.h"
#include "kaon/v1/config.pb.h"
#include "kernels/backend.h"
#include "kernels/steady_clock.h"
#include "proto/identity.h"
#include "proto/status_macros.h"
#include "server/admin_cli/admin_calls.h"
#include "server/admin_cli/backend_report.h"
#include "server/admin_cli/checkpoint_command.h"
#include "server/admin_cli/digest_command.h"
#include "server/admin_cli/effective_report.h"
#include "server/admin_cli/events_report.h"
#include "server/admin_cli/exit_status.h"
#include "server/admin_cli/group_command.h"
#include "server/admin_cli/job_command.h"
#include "server/admin_cli/live/redraw.h"
#include "server/admin_cli/live/top_report.h"
#include "server/admin_cli/live/traffic_meter.h"
#include "server/admin_cli/live/watch_events.h"
#include "server/admin_cli/local/form_times.h"
#include "server/admin_cli/local/verify_numerics.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/output.h"
#include "server/admin_cli/parameter_command.h"
#include "server/admin_cli/phases_report.h"
#include "server/admin_cli/preflight/preflight_report.h"
#include "server/admin_cli/report.h"
#include "server/admin_cli/servers/ask_servers.h"
#include "server/admin_cli/shard_command.h"
#include "server/admin_cli/status_report.h"
#include "server/admin_cli/steps/follow_steps.h"
#include "server/admin_cli/terminal.h"
#include "server/admin_cli/tiers_report.h"
#include "server/admin_cli/version_command.h"
#include "server/preflight/preflight.h"

namespace kaon::admin_cli {
namespace {

// Time that the first rates of top are over.
constexpr absl::Duration kFirstInterval = absl::Milliseconds(500);

int Fail(const Options& options, const absl::Status& error) {
  std::cerr << ErrorText(error, options.json);
  return ExitStatusOf(error);
}

// Prints an answer in the requested format. Returns the exit status. `seen` returns why a part of
// the answer is unknown: the command prints the rest and fails.
template <typename T>
int Print(const Options& options, const absl::StatusOr<T>& answer, Json (*json)(const T&),
          std::string (*text)(const T&), absl::Status (*seen)(const T&) = nullptr) {
  if (!answer.ok()) return Fail(options, answer.status());
  if (options.json) {
    std::cout << ToJsonText(json(*answer));
  } else if (options.yaml) {
    std::cout << ToYaml(json(*answer));
  } else {
    std::cout << text(*answer);
  }
  const absl::Status unseen = seen == nullptr ? absl::OkStatus() : seen(*answer);
  return unseen.ok() ? 0 : Fail(options, unseen);
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
  if (!backend.ok()) return Fail(options, backend.status());
  if (options.command == Command::kMeasureForms) {
    return Print<FormTimes>(options, MeasureForms(**backend), FormTimesJson, FormTimesText);
  }
  const NumericsReport report = VerifyNumerics(conformance::NumericsCases(), **backend, std::cerr);
  Print<NumericsReport>(options, report, NumericsJson, NumericsText);
  return NumFailed(report) == 0 ? 0 : 1;
}

absl::StatusOr<preflight::Report> PreflightOf(const Options& options) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDefinition job, ReadJobFile(options.job_file));
  v1::ShardConfig shard;
  shard.set_host_memory_bytes(options.host_memory_bytes);
  shard.set_device_memory_bytes(options.device_memory_bytes);
  shard.set_staging_bytes(options.staging_bytes);
  shard.set_nvme_bytes(options.nvme_bytes);
  shard.set_threads(options.threads);
  shard.set_durability(options.durability);
  shard.set_backend(options.backend);
  KAON_ASSIGN_OR_RETURN(const std::vector<preflight::ShardOffer> offers,
                        preflight::OffersOf(shard, options.shards));
  return preflight::Run(job, offers);
}

absl::StatusOr<preflight::Report> PreflightOf(const Options& options, const AdminCalls& calls) {
  KAON_ASSIGN_OR_RETURN(const v1::JobDefinition job, ReadJobFile(options.job_file));
  KAON_ASSIGN_OR_RETURN(const v1::GetStatusResponse cluster, calls.GetStatus());
  KAON_ASSIGN_OR_RETURN(const std::vector<preflight::ShardOffer> offers,
                        preflight::OffersOf(cluster));
  KAON_ASSIGN_OR_RETURN(preflight::Report report, preflight::Run(job, offers));
  report.running_job = cluster.job();
  return report;
}

int PrintPreflight(const Options& options, const absl::StatusOr<preflight::Report>& report) {
  return Print(options, report, PreflightJson, options.wide ? PreflightWideText : PreflightText,
               preflight::JobFits);
}

int RunOffline(const Options& options) {
  switch (options.command) {
    case Command::kPreflightOffline:
      return PrintPreflight(options, PreflightOf(options));
    case Command::kCheckpointExport:
      return Print(options, ExportCheckpoint(options), ExportedJson, ExportedText);
    case Command::kVersion:
      return Print<VersionFacts>(options, ReadVersion(), VersionJson, VersionsText);
    case Command::kCheckpointImport:
      return Print(options, ImportCheckpoint(options), CheckpointJson, CheckpointText);
    default:
      return RunOnBackend(options);
  }
}

absl::StatusOr<BackendFacts> AskBackend(const AdminCalls& calls) {
  BackendFacts facts;
  KAON_ASSIGN_OR_RETURN(facts.status, calls.GetJobStatus());
  // Shards exist even before a job is registered.
  if (facts.status.job().empty()) return facts;
  KAON_ASSIGN_OR_RETURN(facts.job, calls.DescribeJob());
  KAON_ASSIGN_OR_RETURN(facts.parameters, calls.ListParameters());
  return facts;
}

absl::Status AllBackendsSeen(const BackendFacts& facts) { return AllShardsSeen(facts.status); }

// Any role may ask for health, a reader for most of what changes nothing, and a checkpointer for
// checkpoints.
absl::Status CheckFiles(const Options& options) {
  std::vector<proto::Role> roles = {proto::Role::kAdmin};
  if (IsAReaders(options.command)) roles.push_back(proto::Role::kReader);
  if (IsACheckpointers(options.command)) roles.push_back(proto::Role::kCheckpointer);
  if (options.command == Command::kHealth) roles = client::AllRoles();
  const client::CertificateUse use = {.roles = roles, .calls = true};
  KAON_ASSIGN_OR_RETURN(const std::string warning, client::CheckCertificates(options.tls, use));
  if (!warning.empty()) std::cerr << "kaonctl: warning: " << warning << "\n";
  return absl::OkStatus();
}

// Asks before a command destroys something.
absl::Status ConfirmCommand(const Options& options) {
  if (options.confirmed) return absl::OkStatus();
  const std::string id = options.checkpoint.empty()
                             ? "the newest checkpoint"
                             : absl::StrCat("checkpoint ", options.checkpoint);
  std::string what;
  if (options.command == Command::kCheckpointRestore) {
    what = absl::StrCat("replace the state of the job by ", id);
  } else if (options.command == Command::kCheckpointDelete) {
    what = absl::StrCat("delete ", id);
  } else if (options.command == Command::kJobDelete) {
    what = absl::StrCat("delete job ", options.deleted_job,
                        " with its weights and optimizer state on every shard (checkpoints stay)");
  } else {
    return absl::OkStatus();
  }
  return Confirm(what, isatty(STDIN_FILENO) == 1, std::cin, std::cerr);
}

int PrintStatus(const Options& options, const AdminCalls& calls) {
  if (!options.shard.empty()) {
    return Print(options, calls.DescribeShard(), OneShardJson, OneShardText);
  }
  return Print(options, calls.GetJobStatus(), StatusJson,
               options.wide ? StatusWideText : StatusText);
}

int FollowTheSteps(const Options& options, const AdminCalls& calls) {
  const absl::Status ended =
      FollowSteps([&calls](uint32_t limit) { return calls.StepHistory(limit); },
                  static_cast<uint32_t>(options.limit),
                  [] {
                    PauseFor(absl::Seconds(1));
                    return std::cout.good();
                  },
                  std::cout, std::cerr);
  return ended.ok() ? 0 : Fail(options, ended);
}

// Waits between two answers. Returns false if nobody reads the output.
bool PauseBetween(const Options& options) {
  PauseFor(absl::Seconds(options.interval_seconds));
  return std::cout.good();
}

int WatchTheEvents(const Options& options, const AdminCalls& calls) {
  EndOnInterrupt(false);
  const absl::Status ended =
      WatchEvents([&calls] { return calls.GetJobStatus(); },
                  [&options] { return PauseBetween(options); }, options.json, std::cout, std::cerr);
  return ended.ok() ? 0 : Fail(options, ended);
}

// Asks every shard that is connected for its traffic. A shard that does not answer has none, and
// `facts` says why.
void AskTraffic(const Options& options, TrafficMeter& meter, TopFacts& facts) {
  for (const v1::ShardStatus& shard : facts.status.shards()) {
    const absl::StatusOr<v1::GetProcessResponse> process =
        shard.connected() ? GetProcess(options, shard.address(), proto::Role::kShard)
                          : absl::UnavailableError("");
    if (process.ok()) {
      facts.traffic[shard.shard()] = meter.Note(shard.shard(), *process, SteadyNow());
      continue;
    }
    meter.Forget(shard.shard());
    if (!shard.connected() || !facts.traffic_seen.ok()) continue;
    facts.traffic_seen = absl::Status(process.status().code(),
                                      absl::StrCat("traffic of shard ", shard.shard(),
                                                   " is unknown: ", process.status().message()));
  }
}

absl::StatusOr<TopFacts> AskTop(const Options& options, const AdminCalls& calls,
                                TrafficMeter& meter) {
  TopFacts facts;
  KAON_ASSIGN_OR_RETURN(facts.status, calls.GetJobStatus());
  AskTraffic(options, meter, facts);
  // Shards exist even before a job is registered.
  if (facts.status.job().empty()) return facts;
  KAON_ASSIGN_OR_RETURN(facts.history, calls.StepHistory());
  return facts;
}

Frame TopFrame(const Options& options, const AdminCalls& calls, TrafficMeter& meter) {
  Frame frame;
  const absl::StatusOr<TopFacts> facts = AskTop(options, calls, meter);
  absl::Status seen = facts.status();
  if (facts.ok()) {
    frame.text = TopText(*facts);
    if (options.json) frame.text = absl::StrCat(TopJson(*facts).dump(), "\n");
    if (options.yaml) frame.text = ToYaml(TopJson(*facts));
    seen = TopSeen(*facts);
  }
  if (seen.ok()) return frame;
  frame.error = ErrorText(seen, options.json);
  frame.exit_status = ExitStatusOf(seen);
  return frame;
}

int ShowTop(const Options& options, const AdminCalls& calls) {
  RedrawOptions redraw;
  redraw.frames = options.frames;
  redraw.is_terminal = isatty(STDOUT_FILENO) == 1 && !options.json && !options.yaml;
  redraw.separator = options.yaml ? "---\n" : options.json ? "" : "\n";
  EndOnInterrupt(redraw.is_terminal);
  TrafficMeter meter;
  // Rates need an answer before the first frame.
  if (const absl::StatusOr<v1::GetStatusResponse> status = calls.GetJobStatus(); status.ok()) {
    TopFacts first;
    first.status = *status;
    AskTraffic(options, meter, first);
    PauseFor(std::min(absl::Seconds(options.interval_seconds), kFirstInterval));
  }
  return Redraw(
      redraw, [&] { return TopFrame(options, calls, meter); },
      [&options] { return PauseBetween(options); }, std::cout, std::cerr);
}

// Returns the shards of the cluster; none if the user names one.
absl::StatusOr<v1::GetStatusResponse> ShardsToAsk(const Options& options, const AdminCalls& calls) {
  if (!options.shard.empty()) return v1::GetStatusResponse();
  return calls.GetStatus();
}

int RunQuery(const Options& options, const AdminCalls& calls) {
  switch (options.command) {
    case Command::kStatus:
      return PrintStatus(options, calls);
    case Command::kPreflight:
      return PrintPreflight(options, PreflightOf(options, calls));
    case Command::kWorkerList:
      return Print(options, calls.GetHolderStatus(), WorkerListJson, WorkerListText);
    case Command::kStatusEvents:
      return Print(options, calls.GetJobStatus(), StatusJson, EventsText, AllShardsSeen);
    case Command::kEventsWatch:
      return WatchTheEvents(options, calls);
    case Command::kTop:
      return ShowTop(options, calls);
    case Command::kJobShow:
      return Print(options, calls.DescribeJob(), JobJson, JobText);
    case Command::kJobEffective:
      return Print(options, calls.DescribeJob(), EffectiveJson, EffectiveText);
    case Command::kJobList:
      return Print(options, calls.ListJobs(), JobListJson, JobListText);
    case Command::kParameters:
      return Print(options, calls.ListParameters(), ParametersJson,
                   options.wide ? ParametersWideText : ParametersText, AllParametersSeen);
    case Command::kParameterStats:
      return Print(options, calls.GetParameterStats(), ParameterStatsJson, ParameterStatsText);
    case Command::kParameterHistory:
      return Print(options, calls.GetParameterHistory(), ParameterHistoryJson,
                   options.csv ? ParameterHistoryCsv : ParameterHistoryText);
    case Command::kParameterRead:
      return Print(options, calls.ReadSlice(), ParameterSliceJson, ParameterSliceText);
    case Command::kParameterDiagnostics:
      return Print(options, calls.GetParameterDiagnostics(), ParameterDiagnosticsJson,
                   ParameterDiagnosticsText);
    case Command::kSteps:
      return Print(options, calls.StepHistory(), StepsJson,
                   options.wide ? StepsWideText : StepsText);
    case Command::kStepPhases:
      return Print(options, calls.StepHistory(), PhasesJson, PhasesText, AllPhasesSeen);
    case Command::kStepsFollow:
      return FollowTheSteps(options, calls);
    case Command::kDigest:
      return Print(options,
                   AskDigests([&calls] { return calls.GetJobStatus(); },
                              [] { PauseFor(absl::Milliseconds(50)); }),
                   DigestsJson, DigestsText);
    case Command::kBackend:
      return Print(options, AskBackend(calls), BackendJson, BackendText, AllBackendsSeen);
    case Command::kTiers:
      return Print(options, calls.GetJobStatus(), TiersJson, TiersText, AllShardsSeen);
    case Command::kCheckpointList:
      return Print(options, calls.ListCheckpoints(), CheckpointsJson, CheckpointsText);
    case Command::kCheckpointVerify:
      return Print(options, calls.VerifyCheckpoint(), CheckpointJson, CheckpointText);
    default:
      return Print<HealthReport>(options, calls.CheckHealth(), HealthJson, HealthText, AllServe);
  }
}

// Runs a command that no reader may run.
int RunAct(const Options& options, const AdminCalls& calls) {
  switch (options.command) {
    case Command::kLogSet:
      return Print<ServerReport>(options, SetLogLevels(options, ShardsToAsk(options, calls)),
                                 ServersJson, LogLevelsText, AllAnswered);
    case Command::kConfig:
      return Print<ServerReport>(options, GetConfigs(options, ShardsToAsk(options, calls)),
                                 ServersJson, ConfigsText, AllAnswered);
    case Command::kJobDelete:
      return Print(options, DeleteJob(calls, options), DeletedJobJson, DeletedJobText);
    case Command::kGroupSet:
      return Print(options, SetGroup(calls, options), GroupJson, GroupText);
    case Command::kCheckpointCreate:
      return Print(options, calls.CreateCheckpoint(), CheckpointJson, CheckpointText);
    case Command::kCheckpointDelete:
      return Print(options, calls.DeleteCheckpoint(), DeletedJson, DeletedText);
    case Command::kShardDrain:
      return Print(options, DrainShard(calls, options, std::cerr), DrainedJson, DrainedText);
    case Command::kCheckpointRestore:
      return Print(options, RestoreCheckpoint(calls, options), RestoredJson, RestoredText);
    default:
      return Fail(options, absl::InternalError("a command without code"));
  }
}

int Run(const Options& options) {
  if (IsOffline(options.command)) return RunOffline(options);
  if (const absl::Status usable = CheckFiles(options); !usable.ok()) {
    std::cerr << UsageErrorText(std::string(usable.message()), options.json);
    return kExitUsage;
  }
  if (const absl::Status confirmed = ConfirmCommand(options); !confirmed.ok()) {
    return Fail(options, confirmed);
  }
  const AdminCalls calls(options);
  return IsAReaders(options.command) ? RunQuery(options, calls) : RunAct(options, calls);
}

// Returns `status`, or a failure if the output is incomplete: a disk may be full.
int CheckWritten(const Options& options, int status) {
  // A command that repeats ends when nobody reads on.
  if (std::cout.flush() || status != 0 || RepeatsByItself(options.command)) return status;
  return Fail(options, absl::DataLossError("the output was not written to its end"));
}

int RunOrWatch(const Options& options) {
  if (!options.watch_seconds.has_value()) return CheckWritten(options, Run(options));
  return Watch([&options] { return Run(options); },
               [&options] {
                 PauseFor(absl::Seconds(*options.watch_seconds));
                 return std::cout.good();
               },
               isatty(STDOUT_FILENO) == 1, std::cout);
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
  return kaon::admin_cli::RunOrWatch(*parsed.options);
}
