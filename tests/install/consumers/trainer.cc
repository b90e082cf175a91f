// A trainer outside of the repository: moves one matrix towards a target for ten steps, with what
// an installed Kaon offers. C++17. Usage: trainer HOST:PORT TLS_DIR
#include <kaon/client.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr int kSteps = 10;
constexpr float kTarget = 1;

// Half the squared distance to the target; its gradient is the distance.
double Loss(const std::vector<float>& weights, std::vector<float>* gradient) {
  double loss = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    (*gradient)[i] = weights[i] - kTarget;
    loss += 0.5 * (*gradient)[i] * (*gradient)[i];
  }
  return loss;
}

// Prints the loss before and after. `value` ends the process with the error of a call.
void Train(const std::string& coordinator, const std::string& tls_dir) {
  kaon::ClientOptions options;
  options.coordinators = {coordinator};
  options.tls = {tls_dir + "/ca.crt", tls_dir + "/worker-0.crt", tls_dir + "/worker-0.key"};
  kaon::JobDefinition definition;
  definition.name = "kaon-train";
  kaon::ParameterSpec matrix;
  matrix.name = "matrix";
  matrix.shape = {16, 16};
  definition.parameters = {matrix};

  kaon::Client client = kaon::Client::Connect(options).value();
  kaon::Job job = client.Register(definition).value();
  kaon::Worker worker = job.Join(0).value();
  std::vector<float> weights(16 * 16, 0), gradient(weights.size());
  const kaon::TensorView gradient_view = {gradient.data(), gradient.size()};
  if (!job.description().weights_loaded) {
    worker.LoadWeights({{weights.data(), weights.size()}}).Get().value();
  }
  const uint64_t first = job.description().applied_step;
  const auto pull = [&](uint64_t step) {
    job.Pull(step, {{0, {weights.data(), weights.size()}}}).Get().value();
  };
  pull(first);
  const double before = Loss(weights, &gradient);
  for (uint64_t step = first + 1; step <= first + kSteps; ++step) {
    Loss(weights, &gradient);
    kaon::BeginOptions begin;
    begin.step = step;
    kaon::Step open = worker.Begin(begin).value();
    (void)open.Push(0, gradient_view);
    if (!open.Finish().Get().value().applied) std::exit(1);
    pull(step);
  }
  const double after = Loss(weights, &gradient);
  std::cout << "trained steps " << first + 1 << " .. " << first + kSteps << ": loss " << before
            << " -> " << after << std::endl;
  if (!(after < before)) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Train(argv[1], argv[2]);
  return 0;
}
