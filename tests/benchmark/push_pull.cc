// How fast the client library pushes gradients to a shard and pulls weights from it over gRPC on
// loopback, beside raw TCP with the same chunks and one copy, by turns in the same run
// (docs/design/performance.md section 0). Client and shard are real; they share this process and
// its CPUs, as the two ends of the raw connection do.
#include <glog/logging.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "kernels/steady_clock.h"
#include "server/coordinator/coordinator_server.h"
#include "server/shard/shard_server.h"
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
  int rounds = 5;
  std::string json;
};

template <typename T>
T ValueOf(Result<T> result) {
  CHECK(result.ok()) << result.status().ToString();
  return std::move(result).value();
}

// One coordinator and one shard that keeps nothing on disk: what is measured is the way there.
class Servers {
 public:
  Servers(std::string directory, uint64_t state_bytes) : directory_(std::move(directory)) {
    v1::ShardConfig shard;
    shard.set_listen("127.0.0.1:0");
    shard.set_data_dir(directory_);
    shard.set_durability("none");
    // Weights, the sum of the gradients, staging.
    shard.set_host_memory_bytes(3 * state_bytes + (uint64_t{256} << 20));
    auto shard_server = shard::ShardServer::Start(shard);
    CHECK(shard_server.ok()) << shard_server.status();
    shard_ = *std::move(shard_server);
    v1::CoordinatorConfig coordinator;
    coordinator.set_listen("127.0.0.1:0");
    coordinator.add_shards(absl::StrCat("127.0.0.1:", shard_->port()));
    auto coordinator_server = coordinator::CoordinatorServer::Start(coordinator);
    CHECK(coordinator_server.ok()) << coordinator_server.status();
    coordinator_ = *std::move(coordinator_server);
  }

  ~Servers() {
    coordinator_->Shutdown();
    shard_->Shutdown();
    std::filesystem::remove_all(directory_);
  }

  Client Connect() const {
    ClientOptions options;
    options.coordinators = {absl::StrCat("127.0.0.1:", coordinator_->port())};
    return ValueOf(Client::Connect(options));
  }

 private:
  const std::string directory_;
  std::unique_ptr<shard::ShardServer> shard_;
  std::unique_ptr<coordinator::CoordinatorServer> coordinator_;
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

// One process's worth of a data-parallel trainer.
class Trainer {
 public:
  Trainer(const Servers& servers, const JobDefinition& definition, uint32_t rank)
      : client_(servers.Connect()),
        job_(ValueOf(client_.Register(definition))),
        worker_(ValueOf(job_.Join(rank))) {
    for (const ParameterSpec& parameter : definition.parameters) {
      gradients_.emplace_back(parameter.shape[0], 1e-3f);
      weights_.emplace_back(parameter.shape[0], 0.0f);
    }
    if (rank == 0 && !job_.description().weights_loaded) {
      ValueOf(worker_.LoadWeights(Views(weights_)).Get());
    }
  }

  // Until the shard has accepted the last byte.
  void Push() {
    if (next_ == 0) next_ = ValueOf(job_.Refresh()).applied_step + 1;
    BeginOptions begin;
    begin.step = next_;
    step_ = std::make_unique<Step>(ValueOf(worker_.Begin(begin)));
    std::vector<Future<Done>> accepted;
    const std::vector<TensorView> views = Views(gradients_);
    for (uint32_t id = 0; id < views.size(); ++id) accepted.push_back(step_->Push(id, views[id]));
    for (Future<Done>& one : accepted) ValueOf(one.Get());
  }

  void Finish() {
    ValueOf(step_->Finish().Get());
    step_.reset();
    ++next_;
  }

  void Pull() {
    std::vector<PullTarget> targets;
    for (uint32_t id = 0; id < weights_.size(); ++id) {
      targets.push_back({id, {weights_[id].data(), weights_[id].size(), DType::kFloat32}});
    }
    ValueOf(job_.Pull(next_ - 1, std::move(targets)).Get());
  }

 private:
  static std::vector<TensorView> Views(const std::vector<std::vector<float>>& tensors) {
    std::vector<TensorView> views;
    for (const auto& tensor : tensors) {
      views.push_back({tensor.data(), tensor.size(), DType::kFloat32});
    }
    return views;
  }

  Client client_;
  Job job_;
  Worker worker_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> weights_;
  std::unique_ptr<Step> step_;
  uint64_t next_ = 0;
};

// Seconds that all take, each in a thread of its own.
double SecondsOfAll(std::vector<std::unique_ptr<Trainer>>& trainers,
                    const std::function<void(Trainer&)>& work) {
  const absl::Time start = SteadyNow();
  std::vector<std::thread> threads;
  for (const auto& trainer : trainers) {
    threads.emplace_back([&work, &trainer] { work(*trainer); });
  }
  for (std::thread& thread : threads) thread.join();
  return absl::ToDoubleSeconds(SteadyNow() - start);
}

std::string NewDirectory() {
  std::string directory = (std::filesystem::temp_directory_path() / "kaon-push-XXXXXX").string();
  PCHECK(mkdtemp(directory.data()) != nullptr) << directory;
  return directory;
}

void Report(const char* name, const std::string& settings, double bytes, const Rounds& rounds,
            std::FILE* json) {
  Measurement measurement;
  measurement.name = name;
  measurement.settings = settings;
  measurement.unit = "GB/s";
  measurement.limit_name = "raw TCP, one copy";
  SetRates(rounds, 1e-9 * bytes, 1e-9 * bytes, measurement);
  Print(measurement, json);
}

void Measure(const Options& options, int workers, int tensors, std::FILE* json) {
  const uint64_t bytes = options.mebibytes << 20;
  const JobDefinition job = MakeJob(workers, tensors, bytes / sizeof(float));
  const Servers servers(NewDirectory(), bytes);
  // The first one registers the job and loads its weights.
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < workers; ++rank) {
    trainers.push_back(std::make_unique<Trainer>(servers, job, rank));
  }
  LoopbackTcp tcp(workers, bytes);
  Rounds push;
  Rounds pull;
  for (int round = 0; round <= options.rounds; ++round) {
    const double pushed = SecondsOfAll(trainers, [](Trainer& trainer) { trainer.Push(); });
    SecondsOfAll(trainers, [](Trainer& trainer) { trainer.Finish(); });
    const double pulled = SecondsOfAll(trainers, [](Trainer& trainer) { trainer.Pull(); });
    const absl::Time start = SteadyNow();
    tcp.Transfer(kChunkBytes);
    const double raw = absl::ToDoubleSeconds(SteadyNow() - start);
    // Memory is touched and connections are made in the first one.
    if (round == 0) continue;
    push.work.push_back(pushed);
    push.limit.push_back(raw);
    pull.work.push_back(pulled);
    pull.limit.push_back(raw);
  }
  const std::string settings =
      absl::StrCat(options.mebibytes, " MiB in ", tensors, " tensors, ", workers, " workers");
  const double total = static_cast<double>(bytes) * workers;
  Report("push", settings, total, push, json);
  Report("pull", settings, total, pull, json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Speed of pushing and pulling over loopback beside raw TCP, measured by turns.");
  app.add_option("--mebibytes", options.mebibytes, "that each worker pushes and pulls (256)");
  app.add_option("--workers", options.workers, "numbers of workers (1,4)")->delimiter(',');
  app.add_option("--tensors", options.tensors, "numbers of tensors they are in (10)")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds, "of each measurement, at least 5 (5)");
  app.add_option("--json", options.json, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const JsonFile json = OpenJson(options.json);
  for (const int tensors : options.tensors) {
    for (const int workers : options.workers) {
      Measure(options, workers, tensors, json.get());
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
