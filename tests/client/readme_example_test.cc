// The examples of README.md, "Train your own model", and of client/kaon/client.h. They compile as
// C++17, train, and equal the lines of the page and the header.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "tests/client/client_fixture.h"
#include "tests/testing/fake_cluster.h"

static_assert(__cplusplus == 201703L, "compiled as C++17");

namespace kaon {
namespace {

using Lines = std::vector<std::string>;

std::string Unindented(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  return line;
}

// Returns the lines of `path` between each line `begin` and the next line `end`, without their
// indentation. Leaves out empty lines.
Lines LinesBetween(const std::string& path, const std::string& begin, const std::string& end) {
  std::ifstream file(path);
  Lines lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    line = Unindented(line);
    inside = inside && line != end;
    if (inside && !line.empty()) lines.push_back(line);
    inside = inside || line == begin;
  }
  return lines;
}

// Returns the indented lines of the comment that opens a header.
Lines LinesInComment(const std::string& path) {
  std::ifstream file(path);
  Lines lines;
  for (std::string line; std::getline(file, line) && line.rfind("//", 0) == 0;) {
    if (line.rfind("//     ", 0) == 0) lines.push_back(Unindented(line.substr(2)));
  }
  return lines;
}

class ExampleTest : public ::testing::Test {
 protected:
  ExampleTest() : weight_(6, 0.5f), bias_(3) {
    definition_.name = "kaon-train";
    definition_.parameters.resize(2);
    definition_.parameters[0].name = "hidden.weight";
    definition_.parameters[0].shape = {2, 3};
    definition_.parameters[1].name = "hidden.bias";
    definition_.parameters[1].shape = {3};
    weights_ = {{weight_.data(), weight_.size()}, {bias_.data(), bias_.size()}};
    initial_weights_ = {View(weight_), View(bias_)};
    setenv("KAON_ENDPOINTS", cluster_.address().c_str(), 1);
  }

  testing::FakeCluster cluster_;
  std::vector<float> weight_, bias_;
  JobDefinition definition_;
  std::vector<MutableTensorView> weights_;
  std::vector<TensorView> initial_weights_;
  uint64_t num_backwards_ = 0;
};

TEST_F(ExampleTest, OfTheReadmeTrains) {
  const std::vector<ParameterSpec> parameters = definition_.parameters;
  const std::vector<TensorView> initial_weights = initial_weights_, gradients = initial_weights_;
  const std::vector<MutableTensorView> weights = weights_;
  const uint32_t rank = 0;
  const uint64_t last_step = 3;
  const double num_tokens = 512;
  const auto backward = [this] { return 1.0 / ++num_backwards_; };

  // README begin
  // From KAON_ENDPOINTS, KAON_TLS_DIR and KAON_RANK, or set the fields yourself.
  kaon::ClientOptions options = kaon::ClientOptions::FromEnvironment().value();
  kaon::JobDefinition definition;      // no groups: preset "default", Muon and AdamW
  definition.name = "kaon-train";      // the job that the certificate names
  definition.parameters = parameters;  // name and shape; the index of a parameter is its id

  kaon::Client client = kaon::Client::Connect(options).value();
  kaon::Job job = client.Register(definition).value();  // attaches if the job exists and is equal
  kaon::Worker worker = job.Join(rank).value();
  if (rank == 0 && !job.description().weights_loaded) {
    worker.LoadWeights(initial_weights).Get().value();
  }
  uint64_t step = job.WaitForWeights(std::chrono::minutes(5)).value();  // the newest version
  std::vector<kaon::PullTarget> targets;
  for (uint32_t id = 0; id < weights.size(); ++id) targets.emplace_back(id, weights[id]);
  job.Pull(step, targets).Get().value();
  while (++step <= last_step) {
    double loss = backward();  // yours: reads the weights, writes the gradients
    kaon::StepRecord record = worker.RunStep({step, num_tokens}, gradients, loss, weights).value();
    if (!record.applied) std::cerr << "skipped: " << record.reason << "\n";
  }
  // README end

  EXPECT_EQ(num_backwards_, 3u);
  // The load of the weights is step 0.
  EXPECT_EQ(cluster_.finishes().size(), 4u);
  const Lines here = LinesBetween(__FILE__, "// README begin", "// README end");
  EXPECT_GT(here.size(), 15u);
  EXPECT_EQ(LinesBetween("README.md", "```cpp", "```"), here);
}

TEST_F(ExampleTest, OfTheHeaderTrains) {
  const ClientOptions options = ClientOptions::FromEnvironment().value();
  const JobDefinition definition = definition_;
  const std::vector<TensorView> initial_weights = initial_weights_, gradients = initial_weights_;
  const std::vector<MutableTensorView> weights = weights_;
  const std::vector<PullTarget> targets = {{0, weights[0]}, {1, weights[1]}};
  const uint32_t rank = 0;
  const uint64_t last_step = 3;
  const double tokens = 512;
  const std::chrono::seconds timeout(20);
  const auto backward = [this] { return 1.0 / ++num_backwards_; };

  // header begin
  auto client = kaon::Client::Connect(options).value();
  auto job = client.Register(definition).value();
  auto worker = job.Join(rank).value();
  if (rank == 0 && !job.description().weights_loaded) {
    worker.LoadWeights(initial_weights).Get().value();  // once in the life of the job
  }
  uint64_t applied = job.WaitForWeights(timeout).value();
  job.Pull(applied, targets).Get().value();
  for (uint64_t step = applied + 1; step <= last_step; ++step) {
    double loss = backward();  // yours: reads the weights, writes the gradients
    worker.RunStep({step, tokens}, gradients, loss, weights).value();
  }
  // header end
  const uint64_t step = last_step + 1;
  const double loss = backward();
  // header begin
  auto open_step = worker.Begin({step, tokens}).value();
  (void)open_step.Push("hidden.weight", gradients[0]);  // or by the parameter's id
  (void)open_step.Push(1, gradients[1]);
  auto record = open_step.Finish({loss}).Get().value();  // the decision
  job.Pull(step, targets).Get().value();
  // header end

  EXPECT_TRUE(record.applied);
  EXPECT_EQ(cluster_.finishes().size(), 5u);
  const Lines here = LinesBetween(__FILE__, "// header begin", "// header end");
  EXPECT_GT(here.size(), 15u);
  EXPECT_EQ(LinesInComment("client/kaon/client.h"), here);
}

}  // namespace
}  // namespace kaon
