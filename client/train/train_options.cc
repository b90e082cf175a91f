#include "client/train/train_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/environment.h"
#include "client/number_flags.h"
#include "kernels/backend.h"
#include "proto/text.h"
#include "proto/version.h"

namespace kaon::train {
namespace {

constexpr double kMuonWeightDecay = 0.1;
constexpr double kAdamWWeightDecay = 0.01;

constexpr char kDescription[] =
    "Trains a character-level language model on the licence texts of this machine: hidden "
    "matrices\n"
    "by Muon, everything else by AdamW, through a Kaon cluster (--connect) or, for comparison, in\n"
    "this process alone (--local). Both end with the same weights bit for bit.";

constexpr char kFooter[] =
    "Environment: KAON_ENDPOINTS, KAON_TLS_DIR, KAON_CA, KAON_CERT and KAON_KEY stand in for "
    "the\n"
    "flags of the same meaning. Exit status: 0 done, 1 failed, 2 wrong command line, 130 stopped "
    "by\n"
    "SIGINT or SIGTERM (the open step is finished and the summary printed).\n"
    "The last line is SUMMARY {json}. Its newton_schulz_updates are of this run: counted with\n"
    "--local; with --connect one for each step that it was told is applied, because a worker may\n"
    "not ask the shards. `kaonctl parameters` shows what the shards counted.\n"
    "Examples:\n"
    "  kaon-train --local\n"
    "  kaon-train --connect 127.0.0.1:7700 --tls-dir ~/kaon/tls\n"
    "  kaon-train --connect 127.0.0.1:7700 --tls-dir ~/kaon/tls --workers 2 --rank 0";

std::map<std::string, kernels::DType> DTypeNames() {
  return {{"float32", kernels::DType::kFloat32},
          {"bfloat16", kernels::DType::kBFloat16},
          {"float16", kernels::DType::kFloat16}};
}

// `words` appear in the help and in the error for any other word.
template <typename Enum>
CLI::Option* AddWordOption(CLI::App& app, const char* flag, std::optional<Enum>& value,
                           const std::map<std::string, Enum>& words, const char* help) {
  return app
      .add_option_function<std::string>(
          flag, [&value, words](const std::string& word) { value = words.at(word); }, help)
      ->check(CLI::IsMember(words));
}

// Parses NAME=FACTOR; returns false if `text` is malformed.
bool ParseFactor(const std::string& text, std::string& name, double& factor) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || !absl::SimpleAtod(text.substr(equals + 1), &factor) ||
      !std::isfinite(factor)) {
    return false;
  }
  name = text.substr(0, equals);
  return true;
}

// Checks a NAME=FACTOR; `form` names both in the help and in errors.
CLI::Validator IsFactor(const std::string& form) {
  return CLI::Validator(
      [form](std::string& text) -> std::string {
        std::string name;
        double factor = 0;
        if (ParseFactor(text, name, factor)) return "";
        return absl::StrCat("is \"", proto::Excerpt(text), "\", must be ", form, ", FACTOR finite");
      },
      form);
}

// Parses RANK:FIRST-LAST; returns false if `text` is malformed.
bool ParseAbsence(const std::string& text, Absence* absence) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar(":-"));
  return parts.size() == 3 && absl::SimpleAtoi(parts[0], &absence->rank) &&
         absl::SimpleAtoi(parts[1], &absence->first_step) &&
         absl::SimpleAtoi(parts[2], &absence->last_step) &&
         absence->first_step <= absence->last_step &&
         text == absl::StrCat(parts[0], ":", parts[1], "-", parts[2]);
}

// Returns the error of a malformed absence; "" if it is good.
std::string CheckAbsence(const std::string& text) {
  Absence ignored;
  if (ParseAbsence(text, &ignored)) return "";
  return absl::StrCat("is \"", proto::Excerpt(text), "\", must be RANK:FIRST-LAST");
}

void AddJobOptions(CLI::App& app, TrainOptions& o) {
  app.add_option("--connect", o.coordinators, "Coordinators, host:port, comma-separated")
      ->delimiter(',');
  app.add_flag("--local", o.local, "Run without any server, in this process");
  app.add_option("--gemm", o.gemm, "Matrix products of --local: amx, onednn or reference")
      ->check(CLI::IsMember({"amx", "onednn", "reference"}))
      ->capture_default_str();
  app.add_option("--job", o.job, "Name of the job; an equal one is resumed at its newest step")
      ->capture_default_str();
  app.add_option("--tls-dir", o.tls_dir,
                 "Directory with ca.crt and worker-<rank>.{crt,key}, or worker.{crt,key}");
  app.add_option("--ca", o.tls.ca, "CA certificate, PEM");
  app.add_option("--cert", o.tls.certificate, "Certificate of the worker, PEM");
  app.add_option("--key", o.tls.private_key, "Its private key, PEM");
  AddWordOption<kaon::Transport>(app, "--transport", o.transport,
                                 {{"auto", kaon::Transport::kAuto},
                                  {"grpc", kaon::Transport::kGrpc},
                                  {"shm", kaon::Transport::kShm}},
                                 "Of gradients and weights: grpc is the network, shm is memory "
                                 "shared with shards of this machine, auto is shm where it is to "
                                 "be had (default: auto)");
  app.add_option("--nccl", o.nccl,
                 "Keep gradients and weights on a GPU, and transfer them by NCCL over this "
                 "interface or subnet, unencrypted");
  app.add_option("--nccl-device", o.nccl_device, "Number of that GPU")->capture_default_str();
}

void AddWorkerOptions(CLI::App& app, TrainOptions& o) {
  app.add_option("--workers", o.workers, "Workers of the job, each a thread of this process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rank", o.rank, "Run only this worker here; the others run elsewhere");
  AddWordOption<kaon::WorkerLoss>(app, "--worker-loss", o.worker_loss,
                                  {{"wait", kaon::WorkerLoss::kWait},
                                   {"shrink", kaon::WorkerLoss::kShrink},
                                   {"fail", kaon::WorkerLoss::kFail}},
                                  "When a worker is lost: wait for another process, go on without, "
                                  "or stop the job (default: wait)");
  app.add_option("--worker-loss-seconds", o.worker_loss_seconds,
                 "How long a step waits for a worker of which nothing is heard (default: 60)");
  app.add_option("--step-seconds", o.step_seconds,
                 "How long a step waits for the gradients of a worker that is heard (default: no "
                 "bound); longer than any honest step");
  app.add_option_function<std::vector<std::string>>(
         "--absent",
         [&o](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) ParseAbsence(text, &o.absences.emplace_back());
         },
         "Of --local: steps without that rank, as a job that shrank had")
      ->check(CLI::Validator(CheckAbsence, "RANK:FIRST-LAST"));
  app.add_option("--split", o.split, "Shares of the batch by rank, such as 3,5 (default: equal)")
      ->delimiter(',');
  app.add_option("--push-dtype", o.push_dtype, "Gradients: float32, bfloat16 or float16")
      ->transform(CLI::CheckedTransformer(DTypeNames()).description(""))
      ->default_str("float32");
  app.add_option("--pull-dtype", o.pull_dtype, "Weights: float32, bfloat16 or float16")
      ->transform(CLI::CheckedTransformer(DTypeNames()).description(""))
      ->default_str("float32");
}

// Adds the options for clipping and normalisation; a clipped gradient may be too small for some
// kinds of it.
void AddClippingOptions(CLI::App& app, TrainOptions& o) {
  app.add_option("--max-grad-norm", o.max_grad_norm,
                 "Clip the norm of what is not exempt, group adamw, to this (0: off)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddWordOption<kaon::ClipScope>(
      app, "--clip-scope", o.clip_scope,
      {{"live", kaon::ClipScope::kLive}, {"all", kaon::ClipScope::kAll}},
      "Norm that the limit is for: of what is clipped, or of exempt gradients too (default: live)");
  app.add_option("--clip-floor", o.clip_floor, "No clip factor goes below this (default: 0, off)")
      ->check(CLI::Range(0.0, 1.0));
  AddWordOption<kaon::ClipPolicy>(
      app, "--muon-clip-policy", o.muon_clip_policy,
      {{"clip", kaon::ClipPolicy::kClip}, {"exempt", kaon::ClipPolicy::kExempt}},
      "Whether group muon is clipped (default: exempt)");
  AddWordOption<kaon::NormMode>(app, "--norm-mode", o.norm_mode,
                                {{"scale_invariant", kaon::NormMode::kScaleInvariant},
                                 {"add_eps", kaon::NormMode::kAddEps},
                                 {"clamp_eps", kaon::NormMode::kClampEps}},
                                "How Newton-Schulz divides by the norm (default: scale_invariant)");
}

void AddStateOptions(CLI::App& app, TrainOptions& o) {
  AddWordOption<kaon::StateDType>(app, "--momentum-dtype", o.momentum_dtype,
                                  {{"float32", kaon::StateDType::kFloat32},
                                   {"bfloat16", kaon::StateDType::kBFloat16},
                                   {"int8", kaon::StateDType::kInt8}},
                                  "Storage of the momentum of both groups (default: float32)");
  AddWordOption<kaon::StateDType>(
      app, "--exp-avg-sq-dtype", o.exp_avg_sq_dtype,
      {{"float32", kaon::StateDType::kFloat32}, {"sqrt_uint8", kaon::StateDType::kSqrtUInt8}},
      "Storage of the second moments of group adamw (default: float32)");
  AddWordOption<kaon::Tier>(app, "--tier", o.tier,
                            {{"auto", kaon::Tier::kAuto},
                             {"host", kaon::Tier::kHost},
                             {"device", kaon::Tier::kDevice},
                             {"nvme", kaon::Tier::kNvme}},
                            "Where shards keep weights and optimizer state of both groups "
                            "(default: auto)");
}

void AddTrainingOptions(CLI::App& app, TrainOptions& o) {
  app.add_option("--steps", o.steps, "Train up to this step; also sets the learning-rate schedule")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1000000}))
      ->capture_default_str();
  app.add_option("--stop-after", o.stop_after,
                 "End after this step, on the schedule of --steps (0: do not)");
  app.add_option("--seed", o.seed, "Of the initial weights and the batches")->capture_default_str();
  app.add_option("--batch-size", o.batch_size, "Predicted characters per step, all workers")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--context", o.model.context, "Characters each prediction sees")
      ->check(CLI::Range(6, 256))
      ->capture_default_str();
  app.add_option("--embedding", o.model.embedding, "Width of a character's embedding")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--hidden", o.model.hidden, "Width of the hidden layers")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--blocks", o.model.blocks, "Residual blocks, one hidden x hidden matrix each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--muon-lr", o.muon_lr, "Base learning rate of group muon")->capture_default_str();
  app.add_option("--adamw-lr", o.adamw_lr, "Base learning rate of group adamw")
      ->capture_default_str();
  app.add_option("--preset", o.preset,
                 "Groups, rates and norm limit of this preset: default, keller, adamw ...")
      ->excludes("--muon-lr", "--adamw-lr", "--max-grad-norm", "--muon-clip-policy", "--norm-mode",
                 "--momentum-dtype", "--exp-avg-sq-dtype");
  app.add_option("--corpus-dir", o.corpus_dir, "Text files; Artistic and Apache-2.0 validate")
      ->capture_default_str();
  app.add_option("--poison-step", o.poison_step,
                 "Rank 0 pushes one NaN in this step, to see it skipped (0: never)");
  app.add_option_function<std::string>(
         "--scale-gradient",
         [&o](const std::string& text) {
           ParseFactor(text, o.scale_gradient.parameter, o.scale_gradient.factor);
         },
         "Multiply one parameter's gradient, to see what a spike does")
      ->check(IsFactor("PARAMETER=FACTOR"));
  app.add_option_function<std::vector<std::string>>(
         "--group-multiplier",
         [&o](const std::vector<std::string>& factors) {
           for (const std::string& text : factors) {
             std::string group;
             double factor = 0;
             ParseFactor(text, group, factor);
             o.group_multipliers[group] = factor;
           }
         },
         "Multiply the learning rate of one group in every step; repeatable")
      ->check(IsFactor("GROUP=FACTOR"));
  app.add_option("--report-every", o.report_every, "Steps between progress lines")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1000000}))
      ->capture_default_str();
  app.add_option("--log-jsonl", o.log_jsonl, "Also write every step and the summary here as JSON");
}

// Flags override the environment. A local run, or one that names its coordinators, takes no
// coordinators from it; a run that names any certificate takes no certificates from it.
void ApplyEnvironment(TrainOptions& options) {
  if (!options.local && options.coordinators.empty()) {
    std::string endpoints = client::FromEnvironment(client::kEndpointsVariable);
    // The name of that variable in earlier versions.
    if (endpoints.empty()) endpoints = client::FromEnvironment("KAON_COORDINATORS");
    options.coordinators = absl::StrSplit(endpoints, ',', absl::SkipEmpty());
  }
  const kaon::TlsFiles& tls = options.tls;
  const bool by_flag = !options.tls_dir.empty() || !tls.ca.empty() || !tls.certificate.empty() ||
                       !tls.private_key.empty();
  if (by_flag) return;
  options.tls_dir = client::FromEnvironment(client::kTlsDirectoryVariable);
  options.tls.ca = client::FromEnvironment(client::kCaVariable);
  options.tls.certificate = client::FromEnvironment(client::kCertificateVariable);
  options.tls.private_key = client::FromEnvironment(client::kPrivateKeyVariable);
}

}  // namespace

absl::Status ValidateOptions(const TrainOptions& options) {
  if (options.local && !options.coordinators.empty()) {
    return absl::InvalidArgumentError("--local and --connect exclude each other");
  }
  if (!options.local && options.coordinators.empty()) {
    return absl::InvalidArgumentError("one of --connect HOST:PORT and --local is needed");
  }
  if (options.rank.has_value() && options.local) {
    return absl::InvalidArgumentError("--rank needs servers, --local runs all ranks");
  }
  if (options.rank.has_value() && *options.rank >= options.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank is ", *options.rank, ", must be below --workers ", options.workers));
  }
  for (const Absence& absence : options.absences) {
    if (!options.local) return absl::InvalidArgumentError("--absent needs --local");
    if (absence.rank >= 1 && absence.rank < options.workers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--absent names rank ", absence.rank, ", must be 1 .. ", options.workers - 1));
  }
  if (!options.split.empty() && options.split.size() != options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("--split has ", options.split.size(),
                                                   " shares for --workers ", options.workers));
  }
  const std::string& scaled = options.scale_gradient.parameter;
  const std::vector<ModelParameter> parameters = ModelParameters(options.model);
  const bool known =
      std::any_of(parameters.begin(), parameters.end(),
                  [&scaled](const ModelParameter& parameter) { return parameter.name == scaled; });
  if (!scaled.empty() && !known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--scale-gradient names ", proto::Excerpt(scaled),
                     ", which the model does not have; ", parameters[1].name, " is one"));
  }
  return absl::OkStatus();
}

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  TrainOptions options;
  CLI::App app(kDescription, "kaon-train");
  app.footer(kFooter);
  AddJobOptions(app, options);
  AddWorkerOptions(app, options);
  AddClippingOptions(app, options);
  AddStateOptions(app, options);
  AddTrainingOptions(app, options);
  app.set_version_flag("--version", proto::VersionText("kaon-train", kernels::BuiltInFeatures()));
  client::AcceptPlainNumbersOnly(app);
  ParsedCommandLine parsed;
  // CLI11 reports errors by exceptions; they end here.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = absl::StrCat(version.what(), "\n");
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.text = absl::StrCat("kaon-train: ", proto::OneLine(error.what()), "\n");
    parsed.exit_status = 2;
    return parsed;
  }
  ApplyEnvironment(options);
  const absl::Status valid = ValidateOptions(options);
  if (!valid.ok()) {
    parsed.text = absl::StrCat("kaon-train: ", valid.message(), "; see --help\n");
    parsed.exit_status = 2;
    return parsed;
  }
  if (options.split.empty()) options.split.assign(options.workers, 1);
  parsed.options = options;
  return parsed;
}

kaon::TlsFiles TlsFilesOf(const TrainOptions& options, uint32_t rank) {
  kaon::TlsFiles files = options.tls;
  if (!options.tls_dir.empty()) {
    const std::string rank_text = absl::StrCat(rank);
    client::FillTlsFiles(options.tls_dir, client::WorkerNameIn(options.tls_dir, rank_text), files);
  }
  return files;
}

kaon::JobDefinition MakeJobDefinition(const TrainOptions& options, const ModelShape& model) {
  kaon::JobDefinition job;
  job.name = options.job;
  job.world_size = options.workers;
  for (const ModelParameter& parameter : ModelParameters(model)) {
    kaon::ParameterSpec spec;
    spec.name = parameter.name;
    spec.shape = parameter.shape;
    spec.is_embedding_or_output = parameter.is_embedding_or_output;
    job.parameters.push_back(spec);
  }
  job.clip_scope = options.clip_scope;
  job.clip_floor = options.clip_floor;
  job.worker_loss = options.worker_loss;
  job.worker_loss_seconds = options.worker_loss_seconds;
  job.step_seconds = options.step_seconds;
  if (!options.preset.empty()) {
    job.preset = options.preset;
    return job;
  }
  job.max_grad_norm = options.max_grad_norm;
  kaon::ParameterGroup muon;
  muon.name = "muon";
  muon.rule = kaon::Rule::kMuon;
  muon.lr = options.muon_lr;
  muon.weight_decay = kMuonWeightDecay;
  muon.clip_policy = options.muon_clip_policy;
  muon.muon.newton_schulz.norm_mode = options.norm_mode;
  muon.momentum_dtype = options.momentum_dtype;
  muon.tier = options.tier;
  kaon::ParameterGroup adamw;
  adamw.name = "adamw";
  adamw.rule = kaon::Rule::kAdamW;
  adamw.lr = options.adamw_lr;
  adamw.weight_decay = kAdamWWeightDecay;
  adamw.momentum_dtype = options.momentum_dtype;
  adamw.tier = options.tier;
  adamw.adamw.exp_avg_sq_dtype = options.exp_avg_sq_dtype;
  job.groups = {muon, adamw};
  job.matrix_group = muon.name;
  job.scalar_group = adamw.name;
  return job;
}

}  // namespace kaon::train
