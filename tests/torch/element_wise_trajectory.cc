// Runs the updates of one parameter by an element-wise rule, for the comparison with torch.optim.
// Standard input is a JSON object with "rule", "lr", "weights", "gradients" (one list per update),
// and options by the names of their configuration. Standard output is one with "weights" and
// "state". A main; one thread.
#include <cstddef>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/conformance/copied_buffers.h"

namespace kaon::kernels {
namespace {

using Json = nlohmann::json;

RuleConfig RuleOf(const Json& in) {
  const auto shared = [&](auto config) {
    config.weight_decay = in.value("weight_decay", 0.0);
    config.decay_mode = in.value("l2", false) ? DecayMode::kL2 : DecayMode::kDecoupled;
    return RuleConfig(config);
  };
  if (in.at("rule") == "sgd") {
    SgdConfig sgd;
    sgd.momentum = in.value("momentum", sgd.momentum);
    sgd.dampening = in.value("dampening", sgd.dampening);
    sgd.nesterov = in.value("nesterov", sgd.nesterov);
    return shared(sgd);
  }
  AdamWConfig adamw;
  adamw.beta1 = in.value("beta1", adamw.beta1);
  adamw.beta2 = in.value("beta2", adamw.beta2);
  adamw.eps = in.value("eps", adamw.eps);
  adamw.amsgrad = in.value("amsgrad", adamw.amsgrad);
  return shared(adamw);
}

int Run() {
  const Json in = Json::parse(std::cin);
  const RuleConfig rule = RuleOf(in);
  auto weights = in.at("weights").get<std::vector<float>>();
  const std::vector<uint64_t> shape = {weights.size()};
  const absl::Status valid = ValidateRule(rule, shape);
  BackendOptions options;
  options.gemm = "reference";
  auto backend = CreateBackend(options);
  if (!valid.ok() || !backend.ok()) {
    std::cerr << valid << " " << backend.status() << "\n";
    return 1;
  }
  const std::vector<StateSlot> slots = StateSlots(rule, shape);
  std::vector<std::vector<float>> state(slots.size(), std::vector<float>(weights.size()));
  const std::vector<Region> regions(state.begin(), state.end());
  UpdateScalars scalars;
  scalars.lr = in.at("lr");
  for (const Json& gradient : in.at("gradients")) {
    const auto grad = gradient.get<std::vector<float>>();
    UpdateCopied(**backend, rule, scalars, shape, {grad, weights, weights, regions});
    scalars.t += 1;
  }
  Json out = {{"weights", weights}, {"state", Json::object()}};
  for (size_t k = 0; k < slots.size(); ++k) out["state"][slots[k].name] = state[k];
  std::cout << out.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace kaon::kernels

int main() { return kaon::kernels::Run(); }
