// The C++ of README.md, "Train your own model": these lines compile, train, and equal the README's.

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "tests/client/client_fixture.h"
#include "tests/testing/fake_cluster.h"

namespace kaon {
namespace {

using Lines = std::vector<std::string>;

// Returns the lines of `path` after the first one equal to `begin` and before the next one equal to
// `end`, all without their indentation; empty lines are left out.
Lines LinesBetween(const std::string& path, const std::string& begin, const std::string& end) {
  std::ifstream file(path);
  Lines lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (inside && line == end) return lines;
    if (inside && !line.empty()) lines.push_back(line);
    inside = inside || line == begin;
  }
  return {};
}

TEST(ReadmeExampleTest, TrainsAndIsTheReadmes) {
  testing::FakeCluster cluster;
  const std::string coordinator = cluster.address();
  const TlsFiles tls_files;
  const uint32_t rank = 0;
  const uint64_t last_step = 3;
  const double num_tokens = 512;
  std::vector<float> weight(6, 0.5f), bias(3);
  ParameterSpec weight_spec, bias_spec;
  weight_spec.name = "hidden.weight";
  weight_spec.shape = {2, 3};
  bias_spec.name = "hidden.bias";
  bias_spec.shape = {3};
  const std::vector<ParameterSpec> parameters = {weight_spec, bias_spec};
  const std::vector<TensorView> initial_weights = {View(weight), View(bias)};
  const std::vector<TensorView> gradients = initial_weights;
  const std::vector<PullTarget> weights = {{0, {weight.data(), weight.size(), DType::kFloat32}},
                                           {1, {bias.data(), bias.size(), DType::kFloat32}}};
  uint64_t num_backwards = 0;
  const auto backward = [&num_backwards] { return 1.0 / ++num_backwards; };

  // README begin
  kaon::ClientOptions options;
  options.coordinators = {coordinator};  // host:port
  options.tls = tls_files;               // ca.crt, worker-0.crt, worker-0.key
  kaon::JobDefinition definition;        // no groups: preset "default", Muon and AdamW
  definition.name = "kaon-train";        // the job that the certificate names
  definition.parameters = parameters;    // name and shape; the index of a parameter is its id

  kaon::Client client = kaon::Client::Connect(options).value();
  kaon::Job job = client.Register(definition).value();  // attaches if the job exists and is equal
  kaon::Worker worker = job.Join(rank).value();
  uint64_t step = job.description().applied_step;
  if (rank == 0 && !job.description().weights_loaded) {
    worker.LoadWeights(initial_weights).Get().value();
  }
  job.Pull(step, weights).Get().value();  // waits for rank 0
  while (step++ < last_step) {
    double loss = backward();  // yours: reads the weights, writes the gradients
    kaon::Step open_step = worker.Begin({step, num_tokens}).value();
    for (uint32_t id = 0; id < gradients.size(); ++id) open_step.Push(id, gradients[id]);
    kaon::FinishOptions finish;
    finish.loss = loss;
    kaon::StepRecord record = open_step.Finish(finish).Get().value();
    if (!record.applied) std::cerr << "skipped: " << record.reason << "\n";
    job.Pull(step, weights).Get().value();
  }
  // README end

  EXPECT_EQ(num_backwards, 3u);
  // The load of the weights is step 0.
  EXPECT_EQ(cluster.finishes().size(), 4u);
  const Lines here = LinesBetween(__FILE__, "// README begin", "// README end");
  EXPECT_GT(here.size(), 20u);
  EXPECT_EQ(LinesBetween("README.md", "```cpp", "```"), here);
}

}  // namespace
}  // namespace kaon
