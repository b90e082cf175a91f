// A worker whose weights all have one value and whose gradients all have another, so that a test
// recognizes either in a log. Its rates are 0, so the weights do not change.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "client/kaon/client.h"

namespace kaon {
namespace {

struct Options {
  std::string connect;
  std::string tls_dir;
  float weight = 0;
  float gradient = 0;
  uint64_t steps = 10;
};

// One tensor for each of two shards, one of them a matrix of Muon's.
JobDefinition MarkedJob() {
  JobDefinition job;
  // The job of the certificates.
  job.name = "kaon-train";
  for (const Rule rule : {Rule::kMuon, Rule::kAdamW}) {
    ParameterGroup& group = job.groups.emplace_back();
    group.name = rule == Rule::kMuon ? "muon" : "adamw";
    group.rule = rule;
    group.lr = 0;
    group.weight_decay = 0;
  }
  ParameterSpec& matrix = job.parameters.emplace_back();
  matrix.name = "matrix";
  matrix.shape = {48, 32};
  matrix.group = "muon";
  ParameterSpec& bias = job.parameters.emplace_back();
  bias.name = "bias";
  bias.shape = {1024};
  bias.group = "adamw";
  job.max_grad_norm = 1;
  return job;
}

std::vector<std::vector<float>> Filled(const JobDefinition& job, float value) {
  std::vector<std::vector<float>> tensors;
  for (const ParameterSpec& parameter : job.parameters) {
    uint64_t elements = 1;
    for (const uint64_t dimension : parameter.shape) elements *= dimension;
    tensors.emplace_back(elements, value);
  }
  return tensors;
}

TensorView ViewOf(const std::vector<float>& values) {
  return {values.data(), values.size(), DType::kFloat32};
}

Status CheckPulled(Job& job, uint64_t step, const std::vector<std::vector<float>>& expected) {
  std::vector<std::vector<float>> pulled = Filled(job.description().definition, 0);
  std::vector<PullTarget> targets;
  for (uint32_t id = 0; id < pulled.size(); ++id) {
    targets.push_back({id, {pulled[id].data(), pulled[id].size(), DType::kFloat32}});
  }
  const Result<Done> done = job.Pull(step, std::move(targets)).Get();
  if (!done.ok()) return done.status();
  return pulled == expected ? Status() : Status(StatusCode::kInternal, "the weights have changed");
}

Status Train(const Options& options) {
  ClientOptions client_options;
  client_options.coordinators = {options.connect};
  client_options.tls = {options.tls_dir + "/ca.crt", options.tls_dir + "/worker-0.crt",
                        options.tls_dir + "/worker-0.key"};
  Result<Client> client = Client::Connect(client_options);
  if (!client.ok()) return client.status();
  Result<Job> job = client->Register(MarkedJob());
  if (!job.ok()) return job.status();
  Result<Worker> worker = job->Join(0);
  if (!worker.ok()) return worker.status();
  const std::vector<std::vector<float>> weights = Filled(MarkedJob(), options.weight);
  const std::vector<std::vector<float>> gradients = Filled(MarkedJob(), options.gradient);
  if (!job->description().weights_loaded) {
    const Result<Done> loaded = worker->LoadWeights({ViewOf(weights[0]), ViewOf(weights[1])}).Get();
    if (!loaded.ok()) return loaded.status();
  }
  for (uint64_t step = job->description().applied_step + 1; step <= options.steps; ++step) {
    BeginOptions begin;
    begin.step = step;
    Result<Step> open = worker->Begin(begin);
    if (!open.ok()) return open.status();
    std::vector<Future<Done>> pushes;
    for (uint32_t id = 0; id < gradients.size(); ++id) {
      pushes.push_back(open->Push(id, ViewOf(gradients[id])));
    }
    const Result<StepRecord> record = open->Finish().Get();
    if (!record.ok()) return record.status();
    if (Status status = CheckPulled(*job, step, weights); !status.ok()) return status;
    std::cout << "step " << step << std::endl;
  }
  return Status();
}

}  // namespace
}  // namespace kaon

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  kaon::Options options;
  CLI::App app("Trains with one value as every weight, and another as every gradient");
  app.add_option("--connect", options.connect)->required();
  app.add_option("--tls-dir", options.tls_dir)->required();
  app.add_option("--weight", options.weight)->required();
  app.add_option("--gradient", options.gradient)->required();
  app.add_option("--steps", options.steps);
  CLI11_PARSE(app, argc, argv);
  const kaon::Status status = kaon::Train(options);
  if (!status.ok()) {
    std::cerr << status.message() << std::endl;
    return 1;
  }
  return 0;
}
