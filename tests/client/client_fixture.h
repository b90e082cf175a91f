// A real client and a fake cluster with one job. One thread.
#ifndef KAON_TESTS_CLIENT_CLIENT_FIXTURE_H_
#define KAON_TESTS_CLIENT_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "tests/testing/fake_cluster.h"

namespace kaon {

constexpr uint64_t kLarge = 600000;

inline JobDefinition SmallJob() {
  JobDefinition job;
  job.name = "small";
  ParameterGroup scalars;
  scalars.name = "scalars";
  scalars.rule = Rule::kAdamW;
  scalars.lr = 0.001;
  job.groups = {scalars};
  job.scalar_group = "scalars";
  ParameterSpec bias;
  bias.name = "bias";
  bias.shape = {4};
  ParameterSpec large;
  large.name = "large";
  large.shape = {kLarge};
  ParameterSpec frozen;
  frozen.name = "frozen";
  frozen.shape = {2};
  frozen.frozen = true;
  job.parameters = {bias, large, frozen};
  return job;
}

inline TensorView View(const std::vector<float>& tensor) {
  return {tensor.data(), tensor.size(), DType::kFloat32};
}

inline std::string Bytes(const std::vector<float>& tensor) {
  return std::string(reinterpret_cast<const char*>(tensor.data()), tensor.size() * 4);
}

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() : client_(Connect(Options())), job_(client_.Register(SmallJob()).value()) {}

  ClientOptions Options() const {
    ClientOptions options;
    options.coordinators = {cluster_.address()};
    options.call_deadline = std::chrono::milliseconds(20000);
    options.step_deadline = std::chrono::milliseconds(20000);
    return options;
  }

  static Client Connect(const ClientOptions& options) { return Client::Connect(options).value(); }

  // Reconnects with a client whose steps and pulls have this deadline.
  void Reconnect(std::chrono::milliseconds deadline) {
    ClientOptions options = Options();
    options.step_deadline = deadline;
    client_ = Connect(options);
    job_ = client_.Register(SmallJob()).value();
  }

  static BeginOptions First() {
    BeginOptions begin;
    begin.step = 1;
    return begin;
  }

  // Returns step 1 of rank 0 after both gradients were pushed.
  Step PushedStep(Worker& worker) {
    Step step = worker.Begin(First()).value();
    (void)step.Push(0, View(bias_));
    (void)step.Push(1, View(large_));
    return step;
  }

  testing::FakeCluster cluster_;
  std::vector<float> bias_ = {1, 2, 3, 4};
  std::vector<float> large_ = std::vector<float>(kLarge, 0.25f);
  Client client_;
  Job job_;
};

}  // namespace kaon

#endif  // KAON_TESTS_CLIENT_CLIENT_FIXTURE_H_
