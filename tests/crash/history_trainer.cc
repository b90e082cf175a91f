// A worker of the simulator's tiny job on real servers. Trains up to a step and logs every call.
// After a kill and a restart it continues with another life's gradients.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/kaon/client.h"
#include "client/wire/job_conversion.h"
#include "kernels/mutex.h"
#include "tests/crash/client_log.h"
#include "tests/simulation/model.h"

namespace kaon::crash {
namespace {

// The job of the certificates.
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

// The newest timeline that the client has heard of.
class Timeline {
 public:
  uint64_t newest() const {
    MutexLock lock(mu_);
    return newest_;
  }
  void Hear(uint64_t timeline) {
    MutexLock lock(mu_);
    newest_ = std::max(newest_, timeline);
  }

 private:
  mutable Mutex mu_;
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 1;
};

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
    client_options.on_rewind = [this](uint64_t timeline, uint64_t) { timeline_.Hear(timeline); };
    Result<Client> client = Client::Connect(client_options);
    if (!client.ok()) return client.status();
    v1::JobDescription description;
    *description.mutable_definition() = tiny_;
    Result<Job> job = client->Register(client::FromProto(description).definition);
    if (!job.ok()) return job.status();
    timeline_.Hear(job->description().timeline);
    Result<Worker> worker = job->Join(options_.rank);
    if (!worker.ok()) return worker.status();
    if (Status status = Load(*job, *worker); !status.ok()) return status;
    return Train(*job, std::move(worker).value());
  }

  uint64_t step() const { return step_; }

 private:
  // Loads the weights, or reads the newest step. A process that did not load them waits for version
  // 0, or gets the error that a later one exists.
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
      log_.CallStep(timeline_.newest(), 0);
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
    if (!now.ok()) return now.status();
    step_ = now->applied_step;
    timeline_.Hear(now->timeline);
    return Status();
  }

  // Handles a refusal: reads where the job is. Returns true if it was rolled back since `joined`.
  Result<bool> Follow(Job& job, uint64_t joined, Worker& worker) {
    if (Status refreshed = Refresh(job); !refreshed.ok()) return refreshed;
    if (timeline_.newest() == joined) return false;
    Result<Worker> again = job.Join(options_.rank);
    if (!again.ok()) return again.status();
    worker = std::move(again).value();
    return true;
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
    const uint64_t call = log_.CallPull(timeline_.newest(), step);
    const Result<Done> pulled = job.Pull(step, std::move(targets)).Get();
    if (pulled.ok()) log_.ReturnPull(call, step, weights);
    return pulled.status();
  }

  Status Train(Job& job, Worker worker) {
    bool pulled = true;
    while (step_ < options_.steps || !pulled) {
      const uint64_t joined = timeline_.newest();
      Status status = pulled ? Step(worker, step_ + 1) : Pull(job, step_);
      if (status.code() == StatusCode::kFailedPrecondition) {
        Result<bool> taken_back = Follow(job, joined, worker);
        if (!taken_back.ok()) return taken_back.status();
        // A step was decided while neither this process nor the one before it could learn it. A
        // version is available until the step after the next.
        if (!*taken_back && !pulled) return status;
        pulled = !*taken_back;
        continue;
      }
      if (!status.ok()) return status;
      if (pulled) ++step_;
      pulled = !pulled;
    }
    return Status();
  }

  Status Step(Worker& worker, uint64_t step) {
    BeginOptions begin;
    begin.step = step;
    begin.token_weight = TokenWeight(options_.rank, options_.life);
    const uint64_t timeline = timeline_.newest();
    const uint64_t call = log_.CallStep(timeline, step);
    Result<kaon::Step> open = worker.Begin(begin);
    if (!open.ok()) return open.status();
    std::vector<std::vector<float>> gradients;
    for (int id = 0; id < tiny_.parameters_size(); ++id) {
      gradients.push_back(
          simulation::Gradient(tiny_, id, options_.rank, NonceOf(options_.life, timeline), step));
    }
    std::vector<Future<Done>> pushes;
    for (uint32_t id = 0; id < gradients.size(); ++id) {
      if (tiny_.parameters(static_cast<int>(id)).frozen()) continue;
      pushes.push_back(open->Push(id, ViewOf(gradients[id])));
    }
    // The gradients are borrowed until then.
    FinishOptions finish;
    finish.loss = LossOf(options_.rank, options_.life);
    Result<StepRecord> record = open->Finish(finish).Get();
    if (record.ok()) log_.ReturnStep(call, *record);
    return record.status();
  }

  const Options options_;
  v1::JobDefinition tiny_;
  ClientLog log_;
  Timeline timeline_;
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
