// Measures how fast the client library pushes gradients to a shard and pulls weights from it, in
// turn with a limit (docs/design/performance.md section 0):
// - gRPC on loopback, compared with raw TCP with the same chunks and one copy, and with protobuf
//   `bytes` in unary calls;
// - gRPC under mutual TLS, compared with OpenSSL's own stream;
// - shared memory, compared with memcpy.
// Client and shard are real. They share this process and its CPUs, and so do the two ends of the
// raw connection.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/kaon/client.h"
#include "proto/chunk_memory.h"
#include "server/shard/transport/shm_endpoint.h"
#include "tests/benchmark/loopback_job.h"
#include "tests/benchmark/loopback_tcp.h"
#include "tests/benchmark/loopback_tls.h"
#include "tests/benchmark/measurement.h"
#include "tests/benchmark/protobuf_unary.h"

namespace kaon::benchmark {
namespace {

// Bytes of a chunk, and of a send on the raw connection.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

struct Options {
  uint64_t mebibytes = 256;
  std::vector<int> workers = {1, 4};
  std::vector<int> tensors = {10};
  // grpc, tls, shm.
  std::vector<std::string> transports = {"grpc", "shm"};
  // Certificates of worker and shard, for tls.
  std::string certificates;
  // Device of the shard; empty: the CPU.
  std::string device;
  int rounds = 5;
  std::string json;
};

// Limit that a transport is compared with; one Run moves as much as all workers push.
class Limit {
 public:
  virtual ~Limit() = default;
  virtual void Run() = 0;
  virtual std::string name() const = 0;
};

class RawTcp : public Limit {
 public:
  RawTcp(int workers, uint64_t bytes) : tcp_(workers, bytes) {}
  void Run() override { tcp_.Transfer(kChunkBytes); }
  std::string name() const override { return "raw TCP, one copy"; }

 private:
  LoopbackTcp tcp_;
};

class RawTls : public Limit {
 public:
  RawTls(int workers, uint64_t bytes, const std::string& certificates)
      : tls_(workers, bytes, certificates) {}
  void Run() override { tls_.Transfer(kChunkBytes); }
  std::string name() const override { return "OpenSSL, " + tls_.cipher(); }

 private:
  LoopbackTls tls_;
};

// Not a limit, but the usual way to send tensors.
class Unary : public Limit {
 public:
  Unary(int workers, uint64_t bytes) : unary_(workers, bytes) {}
  void Run() override { unary_.Transfer(kChunkBytes); }
  std::string name() const override { return "protobuf bytes, unary"; }

 private:
  ProtobufUnary unary_;
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
  std::string name() const override { return "memcpy"; }

 private:
  std::vector<std::vector<char>> from_;
  std::vector<std::vector<char>> to_;
};

// SGD: the cheapest step.
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

// Returns the limit of a transport and its peer, if there is one.
std::vector<std::unique_ptr<Limit>> LimitsOf(const Options& options, const std::string& transport,
                                             int workers) {
  const uint64_t bytes = options.mebibytes << 20;
  std::vector<std::unique_ptr<Limit>> limits;
  if (transport == "shm") {
    limits.push_back(std::make_unique<MemoryCopy>(workers, bytes));
  } else if (transport == "tls") {
    limits.push_back(std::make_unique<RawTls>(workers, bytes, options.certificates));
  } else {
    limits.push_back(std::make_unique<RawTcp>(workers, bytes));
    limits.push_back(std::make_unique<Unary>(workers, bytes));
  }
  return limits;
}

LoopbackOptions ServersOf(const Options& options, const std::string& transport, int workers) {
  LoopbackOptions servers;
  // Weights, the sum of the gradients, staging.
  servers.device = options.device;
  servers.host_memory_bytes = 3 * (options.mebibytes << 20) + (uint64_t{256} << 20);
  if (transport == "shm") {
    servers.shm_sessions = 2 * static_cast<uint32_t>(workers);
    servers.host_memory_bytes += servers.shm_sessions * shard::kShmSessionBytes;
  }
  if (transport == "tls") servers.certificates = options.certificates;
  return servers;
}

std::string SettingsOf(const Options& options, int workers, int tensors) {
  return absl::StrCat(options.mebibytes, " MiB in ", tensors, " tensors, ", workers, " workers");
}

std::string SuffixOf(const std::string& transport) {
  return transport == "grpc" ? "" : "_" + transport;
}

struct PushAndPull {
  SpentOfRounds push;
  SpentOfRounds pull;
};

void Report(Measurement measurement, double bytes, const Rounds& rounds, std::FILE* json) {
  SetRates(rounds, 1e-9 * bytes, 1e-9 * bytes, measurement);
  Print(measurement, json);
}

// Reports bytes per second of `work` and `limit`, and bytes per CPU second as the row NAME_cpu. If
// both keep every CPU busy, the two ratios are about equal.
void Report(Measurement measurement, double bytes, const SpentOfRounds& work,
            const SpentOfRounds& limit, std::FILE* json) {
  measurement.unit = "GB/s";
  Report(measurement, bytes, {work.seconds, limit.seconds}, json);
  measurement.name += "_cpu";
  measurement.unit = "GB/CPU-s";
  Report(measurement, bytes, {work.cpu_seconds, limit.cpu_seconds}, json);
}

PushAndPull MeasureTransfers(const Options& options, const std::string& transport, int workers,
                             int tensors, std::FILE* json) {
  const uint64_t bytes = options.mebibytes << 20;
  const LoopbackServers servers(ServersOf(options, transport, workers));
  LoopbackTrainers trainers =
      MakeTrainers(servers, MakeJob(workers, tensors, bytes / sizeof(float)));
  const std::vector<std::unique_ptr<Limit>> limits = LimitsOf(options, transport, workers);
  PushAndPull spent;
  std::vector<SpentOfRounds> limit_spent(limits.size());
  const auto pull = [&] {
    SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Pull(); });
  };
  for (int round = 0; round <= options.rounds; ++round) {
    // The first round touches memory and makes connections; it does not count.
    if (round == 1) {
      spent = {};
      limit_spent.assign(limits.size(), {});
    }
    spent.push.Add(
        SpentBy([&] { SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Push(); }); }));
    SecondsOfAll(trainers, [](LoopbackTrainer& trainer) { trainer.Finish(); });
    // A step is finished when it is decided, so the first pull waits for its arithmetic.
    pull();
    spent.pull.Add(SpentBy(pull));
    for (size_t i = 0; i < limits.size(); ++i) {
      limit_spent[i].Add(SpentBy([&limit = *limits[i]] { limit.Run(); }));
    }
  }
  for (const auto& trainer : trainers) {
    const TransferTotals totals = trainer->totals();
    CHECK_EQ(totals.shm_bytes, transport == "shm" ? totals.push_bytes + totals.pull_bytes : 0);
  }
  const std::string settings = SettingsOf(options, workers, tensors);
  const double total = static_cast<double>(bytes) * workers;
  for (size_t i = 0; i < limits.size(); ++i) {
    const std::string suffix = i > 0 ? "_peer" : SuffixOf(transport);
    Measurement beside;
    beside.settings = settings;
    beside.limit_name = limits[i]->name();
    beside.name = "push" + suffix;
    Report(beside, total, spent.push, limit_spent[i], json);
    beside.name = "pull" + suffix;
    Report(beside, total, spent.pull, limit_spent[i], json);
  }
  return spent;
}

// Measures every number of tensors; also compares the later numbers with the first.
void MeasureTensors(const Options& options, const std::string& transport, int workers,
                    std::FILE* json) {
  absl::optional<PushAndPull> first;
  const double total = static_cast<double>(options.mebibytes << 20) * workers;
  for (const int tensors : options.tensors) {
    const PushAndPull spent = MeasureTransfers(options, transport, workers, tensors, json);
    if (!first) {
      first = spent;
      continue;
    }
    Measurement beside;
    beside.settings = SettingsOf(options, workers, tensors);
    beside.limit_name = absl::StrCat("in ", options.tensors[0], " tensors");
    beside.name = "push_tensors" + SuffixOf(transport);
    Report(beside, total, spent.push, first->push, json);
    beside.name = "pull_tensors" + SuffixOf(transport);
    Report(beside, total, spent.pull, first->pull, json);
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Speed of pushing and pulling over loopback beside raw TCP, TLS or memcpy, by turns.");
  app.add_option("--mebibytes", options.mebibytes, "that each worker pushes and pulls (256)");
  app.add_option("--workers", options.workers, "numbers of workers (1,4)")->delimiter(',');
  app.add_option("--tensors", options.tensors, "numbers of tensors they are in (10)")
      ->delimiter(',');
  app.add_option("--transports", options.transports, "of grpc, tls and shm (grpc,shm)")
      ->delimiter(',')
      ->check(CLI::IsMember({"grpc", "tls", "shm"}));
  app.add_option("--certificates", options.certificates,
                 "directory of deploy/certificates.sh --job push-pull, for tls");
  app.add_option("--device", options.device, "of the shard, such as cuda:0 (the CPU)");
  app.add_option("--rounds", options.rounds, "of each measurement (5)")->check(CLI::Range(5, 1000));
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const JsonFile json = OpenJson(options.json);
  for (const std::string& transport : options.transports) {
    for (const int workers : options.workers) {
      MeasureTensors(options, transport, workers, json.get());
    }
  }
  return 0;
}

}  // namespace
}  // namespace kaon::benchmark

int main(int argc, char** argv) {
  kaon::proto::KeepChunkMemory();
  google::InitGoogleLogging(argv[0]);
  return kaon::benchmark::Main(argc, argv);
}
