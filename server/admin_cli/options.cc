#include "server/admin_cli/options.h"

#include <CLI/CLI.hpp>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/environment.h"
#include "client/number_flags.h"
#include "client/transport/loopback.h"
#include "kernels/backend.h"
#include "proto/text.h"
#include "proto/version.h"
#include "server/admin_cli/arguments/add_command.h"
#include "server/admin_cli/arguments/checkpoint_arguments.h"
#include "server/admin_cli/arguments/parameter_arguments.h"
#include "server/admin_cli/completion.h"
#include "server/admin_cli/exit_status.h"

namespace kaon::admin_cli {

namespace {

constexpr char kFooter[] =
    "Where the cluster is: --endpoints with --tls-dir (or --ca, --cert, --key), or --dir, the\n"
    "directory that deploy/quickstart.sh --keep-running names. A flag beats its KAON_ variable,\n"
    "and both beat what --dir says.\n"
    "Examples:\n"
    "  kaonctl --dir ~/kaon status\n"
    "  kaonctl --dir ~/kaon parameters --filter 'hidden.*weight' -o json\n"
    "  kaonctl --dir ~/kaon parameter stats hidden.0.weight\n"
    "  kaonctl --dir ~/kaon top\n"
    "  kaonctl --dir ~/kaon --watch 2 status\n"
    "  kaonctl --dir ~/kaon group set scalars lr=0.002 adamw.beta1=0.8\n"
    "  kaonctl --dir ~/kaon job set world_size=4\n"
    "  for n in 0 1 2; do kaonctl --dir ~/kaon shard drain $n --wait || break; done\n"
    "  kaonctl checkpoint export run-1-42 --checkpoint-dir /ckpt --out run.safetensors\n"
    "  kaonctl --endpoints 127.0.0.1:7700 --tls-dir ~/kaon/tls steps --limit 5";

// A drain waits for a step to end, a snapshot to be written, and the shard to start again.
constexpr double kDrainSeconds = 600;

// Arguments as typed, before --dir and --tls-dir become endpoints and files.
struct Typed {
  Options options;
  std::string output = "table";
  std::optional<double> timeout_seconds;
  std::string shell;
  bool effective = false;
  bool events = false;
  bool phases = false;
  bool follow = false;
  bool measure = false;
  bool once = false;
  // events --watch, as text: CLI11 would count a number. Empty = once.
  std::string event_seconds;
  std::string directory;
  std::string tls_directory;
};

void AddGlobalOptions(CLI::App& app, Typed& typed) {
  app.add_option("--dir", typed.directory, "A quickstart's directory: coordinator.port and tls/")
      ->envname(client::kDirectoryVariable);
  app.add_option("--endpoints", typed.options.endpoints, "Coordinators, host:port, comma-separated")
      ->delimiter(',')
      ->envname(client::kEndpointsVariable);
  app.add_option("--tls-dir", typed.tls_directory,
                 "Directory with ca.crt, and .crt and .key of admin, reader or checkpointer")
      ->envname(client::kTlsDirectoryVariable);
  app.add_option("--ca", typed.options.tls.ca, "CA certificate, PEM")->envname(client::kCaVariable);
  app.add_option("--cert", typed.options.tls.certificate, "Certificate of the caller, PEM")
      ->envname(client::kCertificateVariable);
  app.add_option("--key", typed.options.tls.private_key, "Its private key, PEM")
      ->envname(client::kPrivateKeyVariable);
  app.add_option("--shard", typed.options.shard,
                 "health, status, log set, config: ask this one shard, host:port, alone");
  app.add_option(
         "-o,--output", typed.output,
         "table, wide (more columns in some tables), json, yaml, or csv of parameter history")
      ->check(CLI::IsMember({"table", "wide", "json", "yaml", "csv"}))
      ->capture_default_str();
  app.add_option("--timeout", typed.timeout_seconds,
                 "Seconds for each call (10; for shard drain 600)")
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--watch", typed.options.watch_seconds,
                 "Repeat a command that only reads, with so many seconds between")
      ->check(CLI::Range(0.1, 3600.0));
  app.set_version_flag("--version", proto::VersionText("kaonctl", kernels::BuiltInFeatures()));
  app.add_option("--job", typed.options.job, "Name of the job (default: the only one)");
}

void AddShardCommands(CLI::App& app, Typed& typed) {
  CLI::App* shard = app.add_subcommand("shard", "One shard");
  shard->require_subcommand(1);
  shard->fallthrough();
  CLI::App* drain =
      AddCommand(*shard, "drain", "End its process between two steps; a supervisor starts it again",
                 Command::kShardDrain, typed.options);
  drain->add_option("N", typed.options.shard_index, "Its index, from 0, as status shows it")
      ->required();
  drain->add_flag("--wait", typed.options.wait, "Until it is back and steps go on");
}

// Adds the FIELD=VALUE arguments of `group set` and `job set`.
void AddSettings(CLI::App& set, const char* help, Options& options) {
  set.add_option("settings", options.settings, help)
      ->required()
      ->check([](const std::string& argument) {
        const size_t equals = argument.find('=');
        const bool good = equals != std::string::npos && equals > 0;
        return good ? std::string()
                    : absl::StrCat("'", proto::Excerpt(argument), "' is not FIELD=VALUE");
      });
  set.add_option("--expect-revision", options.expected_revision,
                 "Only if the job is at this one or further (default: the one it is at now)");
}

void AddJobCommands(CLI::App& app, Typed& typed) {
  CLI::App* job = app.add_subcommand("job", "The job");
  job->require_subcommand(1);
  job->fallthrough();
  CLI::App* show = AddCommand(*job, "show", "Definition, groups and progress of the job",
                              Command::kJobShow, typed.options);
  show->add_flag("--effective", typed.effective,
                 "Every value of the job and its groups, and where it comes from");
  AddSettings(
      *AddCommand(*job, "set", "Change the workers of the job between two steps, all or none",
                  Command::kGroupSet, typed.options),
      "FIELD=VALUE: world_size=4 worker_loss=shrink worker_loss_seconds=30 step_seconds=60",
      typed.options);
  for (const bool pause : {true, false}) {
    AddCommand(app, pause ? "pause" : "resume",
               pause ? "Decide no step until resume; workers wait, and pulls go on"
                     : "Go on with steps after pause",
               Command::kGroupSet, typed.options)
        ->callback([&typed, pause] {
          typed.options.command = Command::kGroupSet;
          typed.options.settings = {pause ? "paused=true" : "paused=false"};
        });
  }
  AddCommand(*job, "list", "Every job of the cluster: at most one", Command::kJobList,
             typed.options);
  CLI::App* deleted =
      AddCommand(*job, "delete", "End the job and free the cluster for another; checkpoints stay",
                 Command::kJobDelete, typed.options);
  deleted->add_option("NAME", typed.options.deleted_job, "Its name")->required();
  deleted->add_flag("--yes", typed.options.confirmed, "Do not ask; needed without a terminal");
}

void AddVerifyNumerics(CLI::App& app, Typed& typed) {
  CLI::App* verify = AddCommand(app, "verify-numerics",
                                "Every rule on this machine beside float64; needs no cluster",
                                Command::kVerifyNumerics, typed.options);
  verify->add_option("--backend", typed.options.backend, "cpu, or the name of a plugin")
      ->capture_default_str();
  verify
      ->add_option("--gemm", typed.options.gemm, "Matrix products of cpu: amx, onednn or reference")
      ->check(CLI::IsMember({"amx", "onednn", "reference"}))
      ->capture_default_str();
  verify
      ->add_option("--isa", typed.options.isa,
                   "Instruction set of cpu's own loops: widest, avx512, avx2 or scalar")
      ->check(CLI::IsMember({"widest", "avx512", "avx2", "scalar"}))
      ->capture_default_str();
}

void AddPreflight(CLI::App& app, Typed& typed) {
  Options& options = typed.options;
  CLI::App* preflight =
      AddCommand(app, "preflight", "Whether a job fits, and what it needs; changes nothing",
                 Command::kPreflight, typed.options);
  preflight->add_option("JOB", options.job_file, "The job's definition, .textproto or .json")
      ->required();
  CLI::Option* shards =
      preflight
          ->add_option("--shards", options.shards,
                       "So many equal shards, without a cluster (default: those of the cluster)")
          ->check(CLI::Range(1, 1024));
  const auto size = [preflight, shards](const char* name, auto& value, const char* help) {
    preflight->add_option(name, value, help)->needs(shards);
  };
  size("--host-memory-bytes", options.host_memory_bytes, "Of a shard, as of kaon-shard (4 GiB)");
  size("--device-memory-bytes", options.device_memory_bytes, "Of a shard on a device");
  size("--staging-bytes", options.staging_bytes, "Of a shard, as of kaon-shard (64 MiB)");
  size("--nvme-bytes", options.nvme_bytes, "Of a shard, in all, as of kaon-shard (no disk)");
  size("--threads", options.threads, "Of a shard (default: the CPUs of this machine)");
  size("--durability", options.durability, "journal, interval(K) or none (default: journal)");
  size("--backend", options.backend, "cpu, or a plugin that this machine has (default: cpu)");
}

void AddSteps(CLI::App& app, Typed& typed) {
  CLI::App* steps = AddCommand(app, "steps", "Newest decisions: norms, clip factors, outcome",
                               Command::kSteps, typed.options);
  steps->add_option("--limit", typed.options.limit, "So many of the newest")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::Option* const phases = steps->add_flag(
      "--phases", typed.phases, "Where their time went on every shard, and what of it was hidden");
  steps
      ->add_flag("--follow", typed.follow,
                 "Print each new one as a JSON object a line, until Ctrl-C")
      ->excludes(phases);
}

void AddLiveCommands(CLI::App& app, Typed& typed) {
  CLI::App* events =
      AddCommand(app, "events", "What the servers have counted; --watch prints new ones",
                 Command::kStatusEvents, typed.options);
  events
      ->add_flag("--watch{1}", typed.event_seconds,
                 "Print a line for each new one until Ctrl-C, asking each second or =SECONDS")
      ->check(CLI::Range(0.1, 3600.0));
  CLI::App* top = AddCommand(app, "top", "Steps per second, phases and memory by shard, redrawn",
                             Command::kTop, typed.options);
  top->add_option("--interval", typed.options.interval_seconds, "Seconds between two answers")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  CLI::Option* const frames =
      top->add_option("-n", typed.options.frames, "Only so many answers (default: until Ctrl-C)")
          ->check(CLI::Range(1, 1000000));
  top->add_flag("--once", typed.once, "Only one answer: -n 1")->excludes(frames);
}

void AddServerCommands(CLI::App& app, Typed& typed) {
  AddCommand(app, "config", "What every server is configured with, without secrets",
             Command::kConfig, typed.options);
  CLI::App* log = app.add_subcommand("log", "Logs of the servers");
  log->require_subcommand(1);
  log->fallthrough();
  CLI::App* set = AddCommand(*log, "set", "Change what every server logs, until it restarts",
                             Command::kLogSet, typed.options);
  set->add_option("LEVEL", typed.options.log_level, "debug, info, warning or error")
      ->required()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

void AddCommands(CLI::App& app, Typed& typed) {
  const auto add = [&typed](CLI::App& parent, const char* name, const char* help, Command command) {
    return AddCommand(parent, name, help, command, typed.options);
  };
  CLI::App* status =
      add(app, "status", "What the service is doing; shards and workers", Command::kStatus);
  status->add_flag("--events", typed.events,
                   "What the coordinator and the shards have counted since they started");
  AddJobCommands(app, typed);
  CLI::App* parameters =
      add(app, "parameters", "Route, home and state of every parameter", Command::kParameters);
  parameters->add_option("--filter", typed.options.filter, "Only names that contain this RE2");
  AddParameterCommands(app, typed.options);
  AddSteps(app, typed);
  AddLiveCommands(app, typed);
  add(app, "digest", "Digests of weights and state at one position, per shard and of the job",
      Command::kDigest);
  add(app, "backend", "What shards compute with, and how they orthogonalize", Command::kBackend)
      ->add_flag("--measure", typed.measure,
                 "Time Muon's update in standard and Gram form on this machine; needs no cluster");
  add(app, "tiers", "Where shards keep weights and optimizer state, and what their disks did",
      Command::kTiers);
  add(app, "health", "Whether every server is serving", Command::kHealth);
  CLI::App* worker = app.add_subcommand("worker", "Workers of the job");
  worker->require_subcommand(1);
  worker->fallthrough();
  add(*worker, "list", "Every worker that has joined: attempt, step, gradient norm",
      Command::kWorkerList);
  add(app, "version", "Version, commit, build and what backends this machine has",
      Command::kVersion);
  CLI::App* completion = app.add_subcommand(
      "completion", "Print a script; use it by: source <(kaonctl completion bash)");
  completion->add_option("SHELL", typed.shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  CLI::App* group = app.add_subcommand("group", "Groups of hyper-parameters");
  group->require_subcommand(1);
  group->fallthrough();
  CLI::App* set = add(*group, "set", "Change fields of a group from the next step on, all or none",
                      Command::kGroupSet);
  set->add_option("group", typed.options.group, "Name of the group")
      ->required()
      ->check([](const std::string& name) {
        return name.empty() ? std::string(
                                  "must be the name of a group; kaonctl job set "
                                  "changes the job itself")
                            : std::string();
      });
  AddSettings(*set, "FIELD=VALUE: lr=0.01 muon.momentum=0.9", typed.options);
  AddShardCommands(app, typed);
  AddServerCommands(app, typed);
  AddCheckpointCommands(app, typed.options);
  AddPreflight(app, typed);
  AddVerifyNumerics(app, typed);
}

absl::Status ReadDirectory(const std::string& directory, Typed& typed) {
  if (typed.options.endpoints.empty()) {
    absl::StatusOr<std::string> endpoint = client::EndpointIn(directory);
    if (!endpoint.ok()) {
      return absl::NotFoundError(absl::StrCat("--dir: ", endpoint.status().message()));
    }
    typed.options.endpoints.push_back(*std::move(endpoint));
  }
  if (typed.tls_directory.empty()) typed.tls_directory = directory + "/tls";
  return absl::OkStatus();
}

absl::Status CheckAddresses(const Options& options) {
  if (!options.shard.empty()) {
    if (options.command != Command::kStatus && options.command != Command::kHealth &&
        options.command != Command::kLogSet && options.command != Command::kConfig) {
      return absl::InvalidArgumentError("--shard is for health, status, log set and config only");
    }
    if (!client::HostOf(options.shard).empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--shard is '", proto::Excerpt(options.shard), "', must be host:port"));
  }
  if (options.endpoints.empty()) {
    return absl::InvalidArgumentError("one of --endpoints and --dir is needed");
  }
  for (const std::string& endpoint : options.endpoints) {
    if (!client::HostOf(endpoint).empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--endpoints names '", proto::Excerpt(endpoint), "', must be host:port"));
  }
  return absl::OkStatus();
}

// Names the files in --tls-dir. A directory without an admin's certificate may have that of another
// role.
void CompleteTls(Typed& typed) {
  if (typed.tls_directory.empty()) return;
  const char* name = "admin";
  // The last one that is there is used.
  for (const char* role : {"checkpointer", "reader", "admin"}) {
    if (std::ifstream(absl::StrCat(typed.tls_directory, "/", role, ".crt")).good()) name = role;
  }
  client::FillTlsFiles(typed.tls_directory, name, typed.options.tls);
}

absl::Status Resolve(Typed& typed) {
  Options& options = typed.options;
  options.json = typed.output == "json";
  options.yaml = typed.output == "yaml";
  options.wide = typed.output == "wide";
  options.csv = typed.output == "csv";
  if (options.csv && options.command != Command::kParameterHistory) {
    return absl::InvalidArgumentError("-o csv is for parameter history alone");
  }
  if (options.command == Command::kShardDrain) options.timeout_seconds = kDrainSeconds;
  if (typed.timeout_seconds.has_value()) options.timeout_seconds = *typed.timeout_seconds;
  if (typed.effective) options.command = Command::kJobEffective;
  if (typed.events) options.command = Command::kStatusEvents;
  if (!typed.event_seconds.empty()) {
    options.command = Command::kEventsWatch;
    if (!absl::SimpleAtod(typed.event_seconds, &options.interval_seconds)) {
      return absl::InvalidArgumentError("--watch of events must be a number of seconds");
    }
  }
  if (typed.once) options.frames = 1;
  if (typed.phases) options.command = Command::kStepPhases;
  if (typed.follow) options.command = Command::kStepsFollow;
  if (typed.measure) options.command = Command::kMeasureForms;
  if (options.command == Command::kPreflight && options.shards > 0) {
    options.command = Command::kPreflightOffline;
  }
  if (options.watch_seconds.has_value() &&
      (!ChangesNothing(options.command) || RepeatsByItself(options.command) ||
       // Servers record each reading of a configuration.
       options.command == Command::kConfig)) {
    return absl::InvalidArgumentError(
        "--watch repeats only commands that change nothing and end by themselves");
  }
  if (IsOffline(options.command)) return absl::OkStatus();
  if (!typed.directory.empty()) {
    const absl::Status read = ReadDirectory(typed.directory, typed);
    if (!read.ok()) return read;
  }
  CompleteTls(typed);
  return CheckAddresses(options);
}

// Returns whether the user asked for JSON, for an error that ended the parsing.
bool WantsJson(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "-ojson" || word == "--output=json") return true;
    if (word == "json" &&
        (absl::string_view(argv[i - 1]) == "-o" || absl::string_view(argv[i - 1]) == "--output")) {
      return true;
    }
  }
  return false;
}

ParsedCommandLine UsageError(absl::string_view why, bool json) {
  ParsedCommandLine parsed;
  parsed.text = UsageErrorText(absl::StrCat(why, "; see kaonctl --help"), json);
  parsed.exit_status = kExitUsage;
  return parsed;
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  Typed typed;
  CLI::App app("Shows what a Kaon cluster is doing.", "kaonctl");
  app.footer(ExitStatusHelp() + kFooter);
  app.require_subcommand(1);
  AddGlobalOptions(app, typed);
  AddCommands(app, typed);
  client::AcceptPlainNumbersOnly(app);
  ParsedCommandLine parsed;
  // CLI11 reports by exception; none leaves this function.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = absl::StrCat(version.what(), "\n");
    return parsed;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    const std::string why = unknown.empty() ? proto::OneLine(error.what())
                                            : absl::StrCat("unknown command or flag '",
                                                           proto::Excerpt(unknown[0]), "'");
    return UsageError(why, WantsJson(argc, argv));
  }
  if (!typed.shell.empty()) {
    parsed.text = CompletionScript(app, typed.shell);
    return parsed;
  }
  const absl::Status resolved = Resolve(typed);
  if (!resolved.ok()) {
    return UsageError(resolved.message(), typed.options.json);
  }
  parsed.options = typed.options;
  return parsed;
}

}  // namespace kaon::admin_cli
