// Compares steps per second of a job over loopback with data-parallel torch ranks that have the
// same parameters and rules (torch_ranks.py). The two run in turn. Workers use shared memory, the
// default on a shard's machine. Nothing is written to disk, as in torch.
#include <glog/logging.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/large_job.h"
#include "tests/benchmark/loopback_job.h"
#include "tests/benchmark/measurement.h"

namespace kaon::benchmark {
namespace {

struct Options {
  uint64_t million_elements = 32;
  std::vector<int> workers = {1, 2};
  std::vector<std::string> rules = {"adamw", "muon"};
  std::vector<std::string> wires = {"fp32", "bf16"};
  int shards = 1;
  int rounds = 5;
  std::string python = "/usr/bin/python3";
  std::string script = "tests/benchmark/torch_ranks.py";
  std::string json;
};

// Runs torch_ranks.py at the other end of two pipes.
class TorchRanks {
 public:
  // CHECKs that the script starts.
  TorchRanks(const Options& options, const std::string& rules, const std::string& wire, int workers,
             const std::string& store) {
    std::array<int, 2> to;
    std::array<int, 2> from;
    PCHECK(pipe(to.data()) == 0 && pipe(from.data()) == 0);
    pid_ = fork();
    PCHECK(pid_ >= 0);
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int fd : {to[0], to[1], from[0], from[1]}) close(fd);
      const std::string count = absl::StrCat(workers);
      const std::string elements = absl::StrCat(options.million_elements);
      execl(options.python.c_str(), options.python.c_str(), options.script.c_str(), "--workers",
            count.c_str(), "--rules", rules.c_str(), "--wire", wire.c_str(), "--million-elements",
            elements.c_str(), "--store", store.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_.reset(fdopen(to[1], "w"));
    from_.reset(fdopen(from[0], "r"));
    CHECK_EQ(Line(), "ready\n") << options.script << " did not start; it needs Debian's "
                                << "python3-torch: deploy/install_packages.sh --torch";
  }
  ~TorchRanks() {
    to_.reset();
    waitpid(pid_, nullptr, 0);
  }

  // Returns the seconds of the slowest rank.
  double Step() {
    CHECK_GE(std::fputs("\n", to_.get()), 0);
    std::fflush(to_.get());
    const std::string line = Line();
    CHECK(!line.empty()) << "torch_ranks.py ended";
    return std::atof(line.c_str());
  }

 private:
  std::string Line() {
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), from_.get()) == nullptr) return "";
    return line.data();
  }

  pid_t pid_ = 0;
  JsonFile to_;
  JsonFile from_;
};

void Measure(const Options& options, const std::string& rules, const std::string& wire, int workers,
             std::FILE* json) {
  const JobDefinition job = LargeJob(rules == "muon" ? Rules::kHalfMuon : Rules::kAdamW,
                                     options.million_elements, workers);
  LoopbackOptions servers_options = LargeServers(options.shards, options.million_elements);
  // One session for pushes, one for pulls.
  servers_options.shm_sessions = static_cast<uint32_t>(2 * workers);
  const LoopbackServers servers(servers_options);
  LoopbackTrainers trainers =
      MakeTrainers(servers, job, wire == "bf16" ? DType::kBFloat16 : DType::kFloat32);
  TorchRanks torch(options, rules, wire, workers, absl::StrCat(servers.directory(), "/gloo"));
  Rounds rounds;
  for (int round = 0; round <= options.rounds; ++round) {
    const double other = torch.Step();
    const double own = SecondsOfAll(trainers, [](LoopbackTrainer& trainer) {
      trainer.Push();
      trainer.Finish();
      trainer.Pull();
    });
    if (round == 0) continue;
    rounds.work.push_back(own);
    rounds.limit.push_back(other);
  }
  Measurement measurement;
  measurement.name = "step_vs_torch";
  measurement.settings =
      absl::StrCat(options.million_elements, " Mi, ", rules == "muon" ? "half Muon" : "AdamW", ", ",
                   workers, " workers, ", wire, " wire, ", options.shards, " shards, shm");
  measurement.unit = "steps/s";
  measurement.limit_name = "torch ranks with all-reduce, bf16 Newton-Schulz";
  SetRates(rounds, 1, 1, measurement);
  Print(measurement, json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Steps per second beside torch with all-reduce, by turns.");
  app.add_option("--million-elements", options.million_elements,
                 "Mi, half of them in matrices (32)");
  app.add_option("--workers", options.workers, "data-parallel ranks (1,2)")->delimiter(',');
  app.add_option("--rules", options.rules, "muon for half of the elements, adamw (both)")
      ->delimiter(',')
      ->check(CLI::IsMember({"muon", "adamw"}));
  app.add_option("--wire", options.wires, "dtype of gradients and weights, fp32, bf16 (both)")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--shards", options.shards, "shard servers (1)");
  app.add_option("--rounds", options.rounds, "of each measurement (5)")->check(CLI::Range(5, 1000));
  app.add_option("--python", options.python, "an interpreter that has torch (/usr/bin/python3)");
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const JsonFile json = OpenJson(options.json);
  for (const std::string& rules : options.rules) {
    for (const int workers : options.workers) {
      for (const std::string& wire : options.wires) {
        Measure(options, rules, wire, workers, json.get());
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace kaon::benchmark

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::benchmark::Main(argc, argv);
}
