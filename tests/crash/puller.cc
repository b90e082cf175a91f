// Pulls every weight of a job when a line arrives on its standard input. Tests measure with it how
// soon a shard serves a client that does nothing else and knows the placement. Prints the step and
// the digest of the weights at the end.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/kaon/client.h"
#include "kernels/reduce/digest.h"

namespace kaon::crash {
namespace {

struct Options {
  std::string connect;
  std::string tls_dir;
  std::string job = "kaon-train";
};

Status Pull(const Options& options) {
  ClientOptions client_options;
  client_options.coordinators = {options.connect};
  client_options.transport = Transport::kGrpc;
  client_options.step_deadline = std::chrono::seconds(60);
  const std::string key = options.tls_dir + "/worker-0";
  client_options.tls = {options.tls_dir + "/ca.crt", key + ".crt", key + ".key"};
  Result<Client> client = Client::Connect(client_options);
  if (!client.ok()) return client.status();
  Result<Job> job = client->Attach(options.job);
  if (!job.ok()) return job.status();
  const uint64_t step = job->description().applied_step;
  std::vector<std::vector<float>> weights;
  for (const ParameterSpec& parameter : job->description().definition.parameters) {
    size_t elements = 1;
    for (const auto dimension : parameter.shape) elements *= dimension;
    weights.emplace_back(elements);
  }
  std::vector<PullTarget> targets;
  for (uint32_t id = 0; id < weights.size(); ++id) {
    targets.push_back({id, {weights[id].data(), weights[id].size(), DType::kFloat32}});
  }
  std::cout << "ATTACHED" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  const Result<Done> pulled = job->Pull(step, std::move(targets)).Get();
  if (!pulled.ok()) return pulled.status();
  uint64_t digest = 0;
  for (uint32_t id = 0; id < weights.size(); ++id) {
    digest += kernels::TensorDigest(id, kernels::kWeightSlot, weights[id]);
  }
  std::cout << absl::StrFormat("SUMMARY {\"last_step\": %d, \"weights_digest\": \"%016x\"}", step,
                               digest)
            << std::endl;
  return Status();
}

}  // namespace
}  // namespace kaon::crash

int main(int argc, char** argv) {
  kaon::crash::Options options;
  CLI::App app("Pulls every weight of a job once a line is read from the standard input");
  app.add_option("--connect", options.connect)->required();
  app.add_option("--tls-dir", options.tls_dir)->required();
  app.add_option("--job", options.job);
  CLI11_PARSE(app, argc, argv);
  const kaon::Status status = kaon::crash::Pull(options);
  if (!status.ok()) {
    std::cerr << "puller: " << status.message() << std::endl;
    return 1;
  }
  return 0;
}
