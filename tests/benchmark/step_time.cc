// Measures whole steps over loopback, in turn with their limits (docs/design/performance.md):
// - `overhead`: the time of a small step beyond its arithmetic, with the journal on; also with the
//   time of the disk alone allowed;
// - `step_e2e`: a large step of Muon and AdamW, or of AdamW alone, compared with its slowest stage
//   alone, the time of a perfect pipeline;
// - `step_sum`: the same step, compared with all stages one after the other;
// - `step_ahead`: a step whose gradients arrive slowly, compared with one that must not compute
//   ahead of the decision;
// - `step_watched`: a small step while metrics, a page and JSON logs are in use, compared with the
//   same step of servers without them.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/optimizer_rule.h"
#include "kernels/steady_clock.h"
#include "server/config/server_log.h"
#include "tests/benchmark/disk_alone.h"
#include "tests/benchmark/large_job.h"
#include "tests/benchmark/loopback_job.h"
#include "tests/benchmark/measurement.h"
#include "tests/benchmark/stepped_parameter.h"

namespace kaon::benchmark {
namespace {

// Seconds that a step may take beyond its arithmetic.
constexpr double kAllowedOverhead = 3e-3;
// Mi elements of step_ahead, at most: its steps take twice as long as their arithmetic.
constexpr uint64_t kMostMillionsAhead = 32;

struct Options {
  uint64_t million_elements = 100;
  std::vector<int> workers = {1, 2};
  // muon, for half of the elements, and adamw.
  std::vector<std::string> rules = {"muon", "adamw"};
  int shards = 2;
  int rounds = 5;
  int threads = 2;
  bool watched_only = false;
  std::string json;
};

JobDefinition SmallJob() {
  JobDefinition job;
  job.name = "small";
  job.groups = {Group("adamw", Rule::kAdamW)};
  for (int i = 0; i < 16; ++i) AddParameter(job, "adamw", {256, 256});
  return job;
}

// The arithmetic of one step of a job, by itself.
class Compute {
 public:
  Compute(const JobDefinition& job, int threads) : pool_(threads) {
    kernels::BackendOptions options;
    options.threads = threads;
    auto backend = kernels::CreateBackend(options);
    CHECK(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    for (const ParameterSpec& parameter : job.parameters) {
      kernels::RuleConfig rule = kernels::AdamWConfig{};
      if (parameter.group == "muon") {
        kernels::MuonConfig muon;
        // The dtype of a group that names no ns_dtype.
        muon.newton_schulz.dtype = kernels::NsDType::kBFloat16;
        rule = muon;
      }
      parameters_.push_back(
          std::make_unique<kernels::SteppedParameter>(rule, parameter.shape, pool_));
    }
  }

  Spent Step() {
    return SpentBy([this] {
      for (const auto& parameter : parameters_) parameter->Step(*backend_);
    });
  }

 private:
  kernels::ThreadPool pool_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::SteppedParameter>> parameters_;
};

void MeasureOverhead(const Options& options, uint32_t shm_sessions, std::FILE* json) {
  const JobDefinition job = SmallJob();
  LoopbackOptions servers_options;
  servers_options.durability = "journal";
  servers_options.shm_sessions = shm_sessions;
  const LoopbackServers servers(servers_options);
  LoopbackTrainers trainers = MakeTrainers(servers, job);
  Compute compute(job, options.threads);
  // The journal writes as many bytes for a step: its gradients.
  const std::string gradients(size_t{4} << 20, 'g');
  DiskAlone disk(servers.directory(), gradients);
  Rounds rounds;
  Rounds beside_disk;
  // More rounds, because steps are short.
  for (int round = 0; round <= 10 * options.rounds; ++round) {
    const double plain = disk.Seconds();
    const double arithmetic = compute.Step().seconds;
    const double step = SecondsOfAll(trainers, [](LoopbackTrainer& trainer) {
      trainer.Push();
      trainer.Finish();
      trainer.Pull();
    });
    if (round == 0) continue;
    rounds.work.push_back(std::max(1e-9, step - arithmetic));
    rounds.limit.push_back(kAllowedOverhead);
    beside_disk.limit.push_back(kAllowedOverhead + plain);
  }
  Measurement measurement;
  measurement.name = "overhead";
  measurement.settings = "1 Mi AdamW, journal, 1 shard, 1 worker";
  if (shm_sessions > 0) measurement.settings += ", shm";
  measurement.unit = "steps/s beyond compute";
  measurement.limit_name = "3 ms";
  SetRates(rounds, 1, 1, measurement);
  Print(measurement, json);
  beside_disk.work = rounds.work;
  measurement.name = "overhead_and_disk";
  measurement.limit_name = "3 ms and the disk alone";
  SetRates(beside_disk, 1, 1, measurement);
  Print(measurement, json);
}

// Servers that are looked at in turns, and others that serve no metrics, each with a small job.
class WatchedAndAlone {
 public:
  explicit WatchedAndAlone(const Options& options)
      : watched_servers_(ServersOf(options, true)),
        alone_servers_(ServersOf(options, false)),
        watched_(MakeTrainers(watched_servers_, SmallJob())),
        alone_(MakeTrainers(alone_servers_, SmallJob())) {}

  // Return the seconds of so many steps.
  double Watched(int num_steps) {
    CHECK_EQ(config::SetLogFormat("json", "step_time"), absl::OkStatus());
    watched_servers_.Watch();
    const double seconds = SecondsOf(watched_, num_steps);
    // Looking would take time from the others' turns, too.
    watched_servers_.Unwatch();
    CHECK_EQ(config::SetLogFormat("text", "step_time"), absl::OkStatus());
    return seconds;
  }
  double Alone(int num_steps) { return SecondsOf(alone_, num_steps); }

 private:
  static LoopbackOptions ServersOf(const Options& options, bool watched) {
    LoopbackOptions servers;
    servers.threads = options.threads;
    servers.watched = watched;
    return servers;
  }
  static double SecondsOf(LoopbackTrainers& trainers, int num_steps) {
    return SpentBy([&] {
             for (int step = 0; step < num_steps; ++step) {
               SecondsOfAll(trainers, [](LoopbackTrainer& trainer) {
                 trainer.Push();
                 trainer.Finish();
                 trainer.Pull();
               });
             }
           })
        .seconds;
  }

  LoopbackServers watched_servers_;
  LoopbackServers alone_servers_;
  LoopbackTrainers watched_;
  LoopbackTrainers alone_;
};

// Prints the median of the ratios of both times in each turn. The interval has it with 95 %
// probability, by order statistics. A busy machine slows down both times of a turn.
void PrintPaired(const Rounds& rounds) {
  std::vector<double> ratios;
  for (size_t i = 0; i < rounds.work.size(); ++i) {
    ratios.push_back(rounds.work[i] / rounds.limit[i]);
  }
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  const size_t away = std::min(half, static_cast<size_t>(std::sqrt(ratios.size())));
  std::printf(
      "step_watched: a step takes %.4f times as long, 95 %% interval %.4f .. %.4f, %zu turns\n",
      ratios[half], ratios[half - away], ratios[std::min(half + away, ratios.size() - 1)],
      ratios.size());
}

// Steps of both jobs by turns. A turn has many steps, so that a scrape falls into each. Their
// order alternates. Servers are started again for each round, because no two run alike.
void MeasureWatched(const Options& options, std::FILE* json) {
  // Small sizes are to see that it runs: a turn need not be longer than a scrape.
  const bool quick = options.million_elements <= 1;
  const int num_steps = quick ? 20 : 400;
  const int num_turns = quick ? 1 : 8;
  Rounds rounds;
  for (int round = 0; round < options.rounds; ++round) {
    WatchedAndAlone jobs(options);
    jobs.Watched(num_steps);
    jobs.Alone(num_steps);
    for (int turn = 0; turn < num_turns; ++turn) {
      const bool watched_first = (round + turn) % 2 == 0;
      if (watched_first) rounds.work.push_back(jobs.Watched(num_steps));
      rounds.limit.push_back(jobs.Alone(num_steps));
      if (!watched_first) rounds.work.push_back(jobs.Watched(num_steps));
    }
  }
  Measurement measurement;
  measurement.name = "step_watched";
  measurement.settings = "1 Mi AdamW, 1 shard, 1 worker";
  measurement.unit = "steps/s";
  measurement.limit_name = "nobody looks";
  SetRates(rounds, num_steps, num_steps, measurement);
  Print(measurement, json);
  PrintPaired(rounds);
}

LoopbackOptions ServersOf(const Options& options) {
  LoopbackOptions servers = LargeServers(options.shards, options.million_elements);
  servers.threads = options.threads;
  return servers;
}

// The transfers of a step, each alone. Its job has the same tensors, but its steps cost almost
// nothing. Folding is part of pushing.
class Transfers {
 public:
  Transfers(const Options& options, JobDefinition job)
      : servers_(ServersOf(options)), trainers_(MakeTrainers(servers_, SgdOf(std::move(job)))) {}

  // Pull measures the weights of the last Push.
  Spent Push() {
    const Spent push = SpentBy(
        [this] { SecondsOfAll(trainers_, [](LoopbackTrainer& trainer) { trainer.Push(); }); });
    SecondsOfAll(trainers_, [](LoopbackTrainer& trainer) { trainer.Finish(); });
    // Wait here for the arithmetic, so that Pull finds computed weights.
    PullAll();
    return push;
  }
  Spent Pull() {
    return SpentBy([this] { PullAll(); });
  }

 private:
  static JobDefinition SgdOf(JobDefinition job) {
    job.name += "-transfers";
    job.groups = {Group("sgd", Rule::kSgd)};
    for (ParameterSpec& parameter : job.parameters) parameter.group = "sgd";
    return job;
  }
  void PullAll() {
    SecondsOfAll(trainers_, [](LoopbackTrainer& trainer) { trainer.Pull(); });
  }

  const LoopbackServers servers_;
  LoopbackTrainers trainers_;
};

void ReportStages(const std::string& name, const std::string& settings, const std::string& limit,
                  const Rounds& rounds, std::FILE* json, const std::string& unit = "1/s") {
  Measurement measurement;
  measurement.name = name;
  measurement.settings = settings;
  measurement.unit = unit;
  measurement.limit_name = limit;
  SetRates(rounds, 1, 1, measurement);
  Print(measurement, json);
}

// Times of each round.
struct StepAndStages {
  SpentOfRounds push;
  SpentOfRounds arithmetic;
  SpentOfRounds pull;
  SpentOfRounds step;
  // Slowest of the three stages alone.
  std::vector<double> slowest;
  SpentOfRounds one_by_one;
};

void ReportLarge(const std::string& settings, const StepAndStages& spent, std::FILE* json) {
  const std::vector<double>& step = spent.step.seconds;
  ReportStages("step_push", settings, "the whole step", {spent.push.seconds, step}, json);
  ReportStages("step_compute", settings, "the whole step", {spent.arithmetic.seconds, step}, json);
  ReportStages("step_pull", settings, "the whole step", {spent.pull.seconds, step}, json);
  ReportStages("step_e2e", settings, "the slowest stage alone", {step, spent.slowest}, json);
  const std::string one_by_one = "the stages one after the other";
  ReportStages("step_sum", settings, one_by_one, {step, spent.one_by_one.seconds}, json);
  // Compares CPU time: of a whole step, and of its stages apart. Vote and decision are in no stage.
  ReportStages("step_sum_cpu", settings, one_by_one,
               {spent.step.cpu_seconds, spent.one_by_one.cpu_seconds}, json, "1/CPU-s");
}

void MeasureLarge(const Options& options, Rules rules, int workers, std::FILE* json) {
  const JobDefinition job = LargeJob(rules, options.million_elements, workers);
  const LoopbackServers servers(ServersOf(options));
  LoopbackTrainers trainers = MakeTrainers(servers, job);
  Transfers transfers(options, job);
  Compute compute(job, options.threads);
  StepAndStages spent;
  for (int round = 0; round <= options.rounds; ++round) {
    const Spent push = transfers.Push();
    const Spent arithmetic = compute.Step();
    const Spent pull = transfers.Pull();
    const Spent step = SpentBy([&trainers] {
      SecondsOfAll(trainers, [](LoopbackTrainer& trainer) {
        trainer.Push();
        trainer.Finish();
        trainer.Pull();
      });
    });
    if (round == 0) continue;
    spent.push.Add(push);
    spent.arithmetic.Add(arithmetic);
    spent.pull.Add(pull);
    spent.step.Add(step);
    spent.slowest.push_back(std::max({push.seconds, arithmetic.seconds, pull.seconds}));
    spent.one_by_one.Add({push.seconds + arithmetic.seconds + pull.seconds,
                          push.cpu_seconds + arithmetic.cpu_seconds + pull.cpu_seconds});
  }
  ReportLarge(absl::StrCat(options.million_elements, " Mi, ",
                           rules == Rules::kHalfMuon ? "half Muon" : "AdamW", ", ", options.shards,
                           " shards, ", workers, " workers"),
              spent, json);
}

// Measures the gain of computing Muon's weights ahead of the decision. Gradients arrive for as long
// as the arithmetic takes, so the shard has time for it. Compares with the same job with clipped
// Muon gradients, which waits for the norm (ADR 0026).
void MeasureAhead(Options options, std::FILE* json) {
  options.million_elements = std::min(options.million_elements, kMostMillionsAhead);
  JobDefinition ahead = LargeJob(Rules::kHalfMuon, options.million_elements, 1);
  // No gradient here reaches it.
  ahead.max_grad_norm = 1e9;
  JobDefinition waiting = ahead;
  for (ParameterGroup& group : waiting.groups) group.clip_policy = ClipPolicy::kClip;
  const LoopbackServers ahead_servers(ServersOf(options));
  const LoopbackServers waiting_servers(ServersOf(options));
  LoopbackTrainers ahead_trainers = MakeTrainers(ahead_servers, ahead);
  LoopbackTrainers waiting_trainers = MakeTrainers(waiting_servers, waiting);
  Compute compute(ahead, options.threads);
  Rounds rounds;
  for (int round = 0; round <= options.rounds; ++round) {
    const absl::Duration backward = absl::Seconds(compute.Step().seconds);
    const auto step = [&](LoopbackTrainer& trainer) {
      trainer.Push(backward);
      trainer.Finish();
      trainer.Pull();
    };
    const double work = SecondsOfAll(ahead_trainers, step);
    const double limit = SecondsOfAll(waiting_trainers, step);
    if (round == 0) continue;
    rounds.work.push_back(work);
    rounds.limit.push_back(limit);
  }
  ReportStages("step_ahead",
               absl::StrCat(options.million_elements, " Mi, half Muon, ", options.shards,
                            " shards, gradients over as long as the arithmetic"),
               "the same, waiting for the norm", rounds, json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Time of whole steps beside their arithmetic and their slowest stage, by turns.");
  app.add_option("--million-elements", options.million_elements,
                 "of step_e2e, Mi, and at most 32 of step_ahead; 0: neither (100)");
  app.add_option("--workers", options.workers, "of step_e2e (1,2)")->delimiter(',');
  app.add_option("--rules", options.rules, "of step_e2e: muon for half of them, adamw (both)")
      ->delimiter(',')
      ->check(CLI::IsMember({"muon", "adamw"}));
  app.add_option("--shards", options.shards, "of step_e2e (2)");
  app.add_option("--threads", options.threads, "compute threads of a shard (2)");
  app.add_option("--rounds", options.rounds, "of each measurement (5)")->check(CLI::Range(5, 1000));
  app.add_flag("--watched-only", options.watched_only, "measures step_watched alone");
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const JsonFile json = OpenJson(options.json);
  if (options.watched_only) {
    MeasureWatched(options, json.get());
    return 0;
  }
  MeasureOverhead(options, 0, json.get());
  // One session for pushes, one for pulls.
  MeasureOverhead(options, 2, json.get());
  MeasureWatched(options, json.get());
  if (options.million_elements == 0) return 0;
  for (const std::string& name : options.rules) {
    const Rules rules = name == "muon" ? Rules::kHalfMuon : Rules::kAdamW;
    for (const int workers : options.workers) MeasureLarge(options, rules, workers, json.get());
    if (rules == Rules::kHalfMuon) MeasureAhead(options, json.get());
  }
  return 0;
}

}  // namespace
}  // namespace kaon::benchmark

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::benchmark::Main(argc, argv);
}
