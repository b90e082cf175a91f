// A worker of the simulator's tiny job, on real servers: trains up to a step and logs every call.
// Killed and started again, it goes on with another life's gradients.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/job_conversion.h"
#include "client/kaon/client.h"
#include "tests/crash/client_log.h"
#include "tests/simulation/model.h"

namespace kaon::crash {
namespace {

// That of the certificates.
constexpr char kJob[] = "kaon-train";

struct Options {
  std::string connect;
  Transport transport = Transport::kAuto;
  std::string tls_dir;
  std::string log;
  uint32_t workers = 2;
  uint32_t rank = 0;
  uint64_t life = 1;
  uint64_t steps = 10;
};

TensorView ViewOf(const std::vector<float>& values) {
  return {values.data(), values.size(), DType::kFloat32};
}

class Trainer {
 public:
  explicit Trainer(const Options& options)
      : options_(options),
        tiny_(simulation::TinyJob(options.workers)),
        log_(options.log, options.rank, options.life) {
    tiny_.set_name(kJob);
  }

  Status Run() {
    ClientOptions client_options;
    client_options.coordinators = {options_.connect};
    client_options.transport = options_.transport;
    const std::string key = absl::StrCat(options_.tls_dir, "/worker-", options_.rank);
    client_options.tls = {options_.tls_dir + "/ca.crt", key + ".crt", key + ".key"};
    Result<Client> client = Client::Connect(client_options);
    if (!client.ok()) return client.status();
    v1::JobDescription description;
    *description.mutable_definition() = tiny_;
    Result<Job> job = client->Register(client::FromProto(description).definition);
    if (!job.ok()) return job.status();
    Result<Worker> worker = job->Join(options_.rank);
    if (!worker.ok()) return worker.status();
    if (Status status = Load(*job, *worker); !status.ok()) return status;
    return Train(*job, *worker);
  }

  uint64_t step() const { return step_; }

 private:
  // Weights and the newest step. Who did not load them waits for version 0, or is told of a later
  // one.
  Status Load(Job& job, Worker& worker) {
    Result<JobDescription> now = job.Refresh();
    if (!now.ok()) return now.status();
    if (!now->weights_loaded && options_.rank == 0) {
      std::vector<std::vector<float>> weights;
      std::vector<TensorView> views;
      for (int id = 0; id < tiny_.parameters_size(); ++id) {
        weights.push_back(simulation::InitialWeights(tiny_, id));
      }
      for (const std::vector<float>& values : weights) views.push_back(ViewOf(values));
      log_.CallStep(0);
      const Result<Done> loaded = worker.LoadWeights(std::move(views)).Get();
      if (!loaded.ok() && loaded.status().code() != StatusCode::kFailedPrecondition) {
        return loaded.status();
      }
    }
    if (const Status pulled = Pull(job, 0);
        !pulled.ok() && pulled.code() != StatusCode::kFailedPrecondition) {
      return pulled;
    }
    return Refresh(job);
  }

  Status Refresh(Job& job) {
    Result<JobDescription> now = job.Refresh();
    if (now.ok()) step_ = now->applied_step;
    return now.status();
  }

  Status Pull(Job& job, uint64_t step) {
    std::vector<std::vector<float>> weights;
    std::vector<PullTarget> targets;
    for (int id = 0; id < tiny_.parameters_size(); ++id) {
      weights.emplace_back(simulation::InitialWeights(tiny_, id).size());
    }
    for (uint32_t id = 0; id < weights.size(); ++id) {
      targets.push_back({id, {weights[id].data(), weights[id].size(), DType::kFloat32}});
    }
    const uint64_t call = log_.CallPull(step);
    const Result<Done> pulled = job.Pull(step, std::move(targets)).Get();
    if (pulled.ok()) log_.ReturnPull(call, step, weights);
    return pulled.status();
  }

  Status Train(Job& job, Worker& worker) {
    while (step_ < options_.steps) {
      const Status status = Step(worker, step_ + 1);
      if (status.code() == StatusCode::kFailedPrecondition) {
        // Decided while this process, or the one before it, was not there to be told.
        if (Status refreshed = Refresh(job); !refreshed.ok()) return refreshed;
        continue;
      }
      if (!status.ok()) return status;
      ++step_;
      if (Status pulled = Pull(job, step_); !pulled.ok()) return pulled;
    }
    return Status();
  }

  Status Step(Worker& worker, uint64_t step) {
    BeginOptions begin;
    begin.step = step;
    begin.token_weight = TokenWeight(options_.rank, options_.life);
    const uint64_t call = log_.CallStep(step);
    Result<kaon::Step> open = worker.Begin(begin);
    if (!open.ok()) return open.status();
    std::vector<std::vector<float>> gradients;
    for (int id = 0; id < tiny_.parameters_size(); ++id) {
      gradients.push_back(simulation::Gradient(tiny_, id, options_.rank, options_.life, step));
    }
    std::vector<Future<Done>> pushes;
    for (uint32_t id = 0; id < gradients.size(); ++id) {
      if (tiny_.parameters(static_cast<int>(id)).frozen()) continue;
      pushes.push_back(open->Push(id, ViewOf(gradients[id])));
    }
    // The gradients are borrowed until then.
    Result<StepRecord> record = open->Finish().Get();
    if (record.ok()) log_.ReturnStep(call, *record);
    return record.status();
  }

  const Options options_;
  v1::JobDefinition tiny_;
  ClientLog log_;
  uint64_t step_ = 0;
};

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("--connect", options.connect)->required();
  app.add_option("--transport", options.transport)
      ->transform(CLI::Transformer(std::map<std::string, Transport>{{"auto", Transport::kAuto},
                                                                    {"grpc", Transport::kGrpc}}));
  app.add_option("--tls-dir", options.tls_dir)->required();
  app.add_option("--log", options.log)->required();
  app.add_option("--workers", options.workers);
  app.add_option("--rank", options.rank);
  app.add_option("--life", options.life);
  app.add_option("--steps", options.steps);
}

}  // namespace
}  // namespace kaon::crash

int main(int argc, char** argv) {
  kaon::crash::Options options;
  CLI::App app("Trains the tiny job of the simulator on real servers and logs every call");
  kaon::crash::AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  kaon::crash::Trainer trainer(options);
  const kaon::Status status = trainer.Run();
  if (!status.ok()) {
    std::cerr << status.message() << std::endl;
    return 1;
  }
  std::cout << "SUMMARY {\"last_step\": " << trainer.step() << "}" << std::endl;
  return 0;
}
