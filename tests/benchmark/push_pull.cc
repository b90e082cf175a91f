// How fast the client library pushes gradients to a shard and pulls weights from it: over gRPC on
// loopback, beside raw TCP with the same chunks and one copy, and over shared memory, beside
// memcpy, by turns in the same run (docs/design/performance.md section 0). Client and shard are
// real; they share this process and its CPUs, as the two ends of the raw connection do.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "kernels/steady_clock.h"
#include "server/shard/shm_endpoint.h"
#include "tests/benchmark/loopback_job.h"
#include "tests/benchmark/loopback_tcp.h"
#include "tests/benchmark/measurement.h"

namespace kaon::benchmark {
namespace {

// Of a chunk, and of a send on the raw connection.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

struct Options {
  uint64_t mebibytes = 256;
  std::vector<int> workers = {1, 4};
  std::vector<int> tensors = {10};
  std::vector<std::string> transports = {"grpc", "shm"};
  int rounds = 5;
  std::string json;
};

// What a transport is measured beside; one Run moves what all workers push.
class Limit {
 public:
  virtual ~Limit() = default;
  virtual void Run() = 0;
  virtual const char* name() const = 0;
};

class RawTcp : public Limit {
 public:
  RawTcp(int workers, uint64_t bytes) : tcp_(workers, bytes) {}
  void Run() override { tcp_.Transfer(kChunkBytes); }
  const char* name() const override { return "raw TCP, one copy"; }

 private:
  LoopbackTcp tcp_;
};

// One thread for each worker.
class MemoryCopy : public Limit {
 public:
  MemoryCopy(int workers, uint64_t bytes)
      : from_(workers, std::vector<char>(bytes, 1)), to_(workers, std::vector<char>(bytes)) {}
  void Run() override {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < from_.size(); ++i) {
      threads.emplace_back([this, i] {
        for (uint64_t at = 0; at < from_[i].size(); at += kChunkBytes) {
          std::memcpy(to_[i].data() + at, from_[i].data() + at,
                      std::min(kChunkBytes, from_[i].size() - at));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const char* name() const override { return "memcpy"; }

 private:
  std::vector<std::vector<char>> from_;
  std::vector<std::vector<char>> to_;
};

// SGD: the cheapest step there is.
JobDefinition MakeJob(int workers, int tensors, uint64_t elements) {
  JobDefinition job;
  job.name = "push-pull";
  job.world_size = workers;
  ParameterGroup sgd;
  sgd.name = "sgd";
  sgd.rule = Rule::kSgd;
  sgd.lr = 1e-3;
  job.groups = {sgd};
  for (int i = 0; i < tensors; ++i) {
    ParameterSpec parameter;
    parameter.name = absl::StrCat("tensor", i);
    parameter.shape = {elements / tensors};
    parameter.group = "sgd";
    job.parameters.push_back(parameter);
  }
  return job;
}

void Report(const std::string& name, const std::string& settings, double bytes, const Limit& limit,
            const Rounds& rounds, std::FILE* json) {
  Measurement measurement;
  measurement.name = name;
  measurement.settings = settings;
  measurement.unit = "GB/s";
  measurement.limit_name = limit.name();
  SetRates(rounds, 1e-9 * bytes, 1e-9 * bytes, measurement);
  Print(measurement, json);
}

void Measure(const Options& options, bool shm, int workers, int tensors, std::FILE* json) {
  const uint64_t bytes = options.mebibytes << 20;
  const JobDefinition job = MakeJob(workers, tensors, bytes / sizeof(float));
  LoopbackOptions servers_options;
  // Weights, the sum of the gradients, staging.
  servers_options.host_memory_bytes = 3 * bytes + (uint64_t{256} << 20);
  if (shm) {
    servers_options.shm_sessions = 2 * static_cast<uint32_t>(workers);
    servers_options.host_memory_bytes += servers_options.shm_sessions * shard::kShmSessionBytes;
  }
  const LoopbackServers servers(servers_options);
  LoopbackTrainers trainers = MakeTrainers(servers, job);
  std::unique_ptr<Limit> limit;
  if (shm) {
    limit = std::make_unique<MemoryCopy>(workers, bytes);
  } else {
    limit = std::make_unique<RawTcp>(workers, bytes);
  }
  Rounds push;
  Rounds pull;
  for (int round = 0; round <= options.rounds; ++round) {
    const double pushed = SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Push(); });
    SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Finish(); });
    const double pulled = SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Pull(); });
    const absl::Time start = SteadyNow();
    limit->Run();
    const double raw = absl::ToDoubleSeconds(SteadyNow() - start);
    // Memory is touched and connections are made in the first one.
    if (round == 0) continue;
    push.work.push_back(pushed);
    push.limit.push_back(raw);
    pull.work.push_back(pulled);
    pull.limit.push_back(raw);
  }
  for (const auto& trainer : trainers) {
    const TransferTotals totals = trainer->totals();
    CHECK_EQ(totals.shm_bytes, shm ? totals.push_bytes + totals.pull_bytes : 0);
  }
  const std::string settings =
      absl::StrCat(options.mebibytes, " MiB in ", tensors, " tensors, ", workers, " workers");
  const double total = static_cast<double>(bytes) * workers;
  const std::string suffix = shm ? "_shm" : "";
  Report("push" + suffix, settings, total, *limit, push, json);
  Report("pull" + suffix, settings, total, *limit, pull, json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of pushing and pulling over loopback beside raw TCP or memcpy, by turns.");
  app.add_option("--mebibytes", options.mebibytes, "that each worker pushes and pulls (256)");
  app.add_option("--workers", options.workers, "numbers of workers (1,4)")->delimiter(',');
  app.add_option("--tensors", options.tensors, "numbers of tensors they are in (10)")
      ->delimiter(',');
  app.add_option("--transports", options.transports, "grpc and shm (both)")
      ->delimiter(',')
      ->check(CLI::IsMember({"grpc", "shm"}));
  app.add_option("--rounds", options.rounds, "of each measurement, at least 5 (5)");
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const JsonFile json = OpenJson(options.json);
  for (const std::string& transport : options.transports) {
    for (const int tensors : options.tensors) {
      for (const int workers : options.workers) {
        Measure(options, transport == "shm", workers, tensors, json.get());
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
