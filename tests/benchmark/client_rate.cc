// Runs steps of a registered job by the C++ client, for comparison with the Python client
// (python_client.py), and prints the seconds of each. Usage: client_rate JOB STEPS; the environment
// names the cluster.
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "client/kaon/client.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto client = kaon::Client::Connect(kaon::ClientOptions::FromEnvironment().value()).value();
  auto job = client.Attach(argv[1]).value();
  auto worker = job.Join(0).value();
  uint64_t step = job.WaitForWeights(std::chrono::minutes(1)).value();
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> weights;
  std::vector<kaon::TensorView> gradient_views;
  std::vector<kaon::MutableTensorView> weight_views;
  for (const kaon::ParameterSpec& parameter : job.description().definition.parameters) {
    size_t num_elements = 1;
    for (const uint64_t size : parameter.shape) num_elements *= size;
    gradients.emplace_back(num_elements, 1e-3f);
    weights.emplace_back(num_elements, 0.0f);
    gradient_views.emplace_back(gradients.back().data(), num_elements);
    weight_views.emplace_back(weights.back().data(), num_elements);
  }
  for (int i = 0; i < std::stoi(argv[2]); ++i) {
    kaon::BeginOptions options;
    options.step = ++step;
    const auto start = std::chrono::steady_clock::now();
    const auto record = worker.RunStep(options, gradient_views, 1.0, weight_views);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!record.ok()) {
      std::cerr << record.status().message() << std::endl;
      return 1;
    }
    std::cout << took.count() << std::endl;
  }
  return 0;
}
