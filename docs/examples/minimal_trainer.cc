// Trains y = W x + b on made-up data through a Kaon cluster, as one of WORLD_SIZE processes:
//     KAON_ENDPOINTS=host:7700 KAON_TLS_DIR=tls KAON_RANK=0 minimal_trainer WORLD_SIZE LAST_STEP
// After a crash, start it again with the same words: it goes on from the newest step.
#include <kaon/client.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

constexpr uint32_t kInputs = 8, kOutputs = 4, kSamples = 32;
std::vector<float> w(kOutputs * kInputs), b(kOutputs), dw(w.size()), db(b.size());

// Returns the mean loss of new samples; writes `scale` times its gradients to dw and db.
double Backward(uint64_t seed, double scale) {
  double loss = 0;
  dw.assign(w.size(), 0), db.assign(b.size(), 0);
  for (uint32_t sample = 0; sample < kSamples; ++sample) {
    std::vector<float> x(kInputs);
    for (uint32_t j = 0; j < kInputs; ++j) x[j] = std::sin(seed * 7. + sample * 5. + j * j * 3.);
    for (uint32_t i = 0; i < kOutputs; ++i) {
      float error = b[i] - 0.5f;
      for (uint32_t j = 0; j < kInputs; ++j) error += (w[i * kInputs + j] - std::sin(i + j)) * x[j];
      loss += error * error / kSamples;
      const float d = static_cast<float>(scale) * 2 * error / kSamples;
      for (uint32_t j = 0; j < kInputs; ++j) dw[i * kInputs + j] += d * x[j];
      db[i] += d;
    }
  }
  return loss;
}

int main(int argc, char** argv) {
  if (argc != 3 || std::getenv("KAON_RANK") == nullptr) return 2;
  const uint32_t rank = std::stoul(std::getenv("KAON_RANK")), world_size = std::stoul(argv[1]);
  kaon::JobDefinition definition;  // no groups: preset "default", Muon and AdamW
  definition.name = "kaon-train";  // the job that the certificate names
  definition.world_size = world_size;
  definition.parameters.resize(2);
  definition.parameters[0].name = "weight", definition.parameters[0].shape = {kOutputs, kInputs};
  definition.parameters[1].name = "bias", definition.parameters[1].shape = {kOutputs};
  definition.loss_scaler.emplace().dynamic = true;
  auto client = kaon::Client::Connect(kaon::ClientOptions::FromEnvironment().value()).value();
  auto job = client.Register(definition).value();
  auto worker = job.Join(rank).value();
  if (rank == 0 && !job.description().weights_loaded)
    worker.LoadWeights({{w.data(), w.size()}, {b.data(), b.size()}}).Get().value();
  uint64_t step = job.WaitForWeights(std::chrono::minutes(5)).value();
  job.Pull(step, {{"weight", {w.data(), w.size()}}, {"bias", {b.data(), b.size()}}}).Get().value();
  std::cout << "starts after step " << step << ", loss " << Backward(0, 1) << std::endl;
  while (++step <= std::stoul(argv[2])) {
    const double loss = Backward(step * world_size + rank, worker.loss_scale());
    auto record = worker.RunStep({step, kSamples}, {{dw.data(), dw.size()}, {db.data(), db.size()}},
                                 loss, {{w.data(), w.size()}, {b.data(), b.size()}});
    if (!record.value().applied) std::cout << "skipped: " << record->reason << std::endl;
  }
  std::cout << "ends after step " << step - 1 << ", loss " << Backward(0, 1) << std::endl;
}
