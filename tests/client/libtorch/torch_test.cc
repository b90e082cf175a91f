// Trains a small model by kaon::torch::RemoteOptimizer and by
// torch::optim::AdamW, and compares the weights. The environment names the
// cluster and kaonctl (libtorch_test.sh).
#include <kaon/torch.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

namespace {

constexpr double kTolerance = 1e-5;

torch::nn::Sequential ModelOf() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(12, 16), torch::nn::Tanh(),
                               torch::nn::Linear(16, 1));
}

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "FAIL: " << what << std::endl;
  std::exit(1);
}

void TrainOneStep(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, int step,
                  double loss_scale = 1) {
  const torch::Tensor x = torch::sin(torch::arange(12 * 64).reshape({64, 12}) * (step + 1.0));
  optimizer.zero_grad();
  const torch::Tensor loss = (model->forward(x) - x.sum(1, true)).square().mean();
  (loss * loss_scale).backward();
  optimizer.step();
}

kaon::torch::RemoteOptimizerOptions Options() {
  kaon::torch::RemoteOptimizerOptions options;
  options.job.name = "libtorch";
  kaon::ParameterGroup& group = options.job.groups.emplace_back();
  group.name = "all";
  group.rule = kaon::Rule::kAdamW;
  group.lr = 0.01;
  group.weight_decay = 0.1;
  group.adamw.beta2 = 0.999;
  options.job.matrix_group = options.job.scalar_group = "all";
  options.job.loss_scaler.emplace().initial_scale = 1024;
  return options;
}

void TestTrainsAsAdamW() {
  torch::nn::Sequential model = ModelOf();
  torch::nn::Sequential other = ModelOf();
  const auto optimizer =
      kaon::torch::RemoteOptimizer::Create(model->named_parameters(), Options()).value();
  torch::optim::AdamW reference(other->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  for (int step = 1; step <= 10; ++step) {
    // As a scheduler does.
    const double lr = 0.01 * (1 - step / 20.0);
    for (torch::optim::Optimizer* one : {static_cast<torch::optim::Optimizer*>(optimizer.get()),
                                         static_cast<torch::optim::Optimizer*>(&reference)}) {
      for (auto& group : one->param_groups()) group.options().set_lr(lr);
    }
    TrainOneStep(model, *optimizer, step, optimizer->loss_scale());
    TrainOneStep(other, reference, step, 1);
    Require(optimizer->last_record()->applied, "a step was skipped");
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      const torch::Tensor wanted = other->parameters()[i];
      const double error =
          ((model->parameters()[i] - wanted).norm() / wanted.norm()).item<double>();
      Require(error < kTolerance, "parameter " + std::to_string(i) + " differs by " +
                                      std::to_string(error) + " after step " +
                                      std::to_string(step));
    }
  }
  Require(optimizer->applied_step() == 10, "applied_step is not 10");
}

void TestAttachesAndPulls() {
  torch::nn::Sequential model = ModelOf();
  const torch::Tensor before = model->parameters()[0].detach().clone();
  const auto optimizer =
      kaon::torch::RemoteOptimizer::Create(model->named_parameters(), Options()).value();
  Require(optimizer->applied_step() == 10, "it did not attach");
  Require(!torch::equal(before, model->parameters()[0]), "it did not pull");
  torch::nn::Sequential another(torch::nn::Linear(3, 2));
  const auto refused = kaon::torch::RemoteOptimizer::Create(another->named_parameters(), Options());
  Require(!refused.ok() && refused.status().code() == kaon::StatusCode::kAlreadyExists,
          "another model was not refused");
  // A step without gradients; libtorch 1.13 leaves zeros.
  optimizer->zero_grad();
  optimizer->step();
  Require(optimizer->applied_step() == 11, "a step without a gradient");
}

// Runs kaonctl on the cluster.
void Administer(const std::string& command) {
  const std::string line = std::string(std::getenv("KAONCTL")) + " --dir " +
                           std::getenv("KAON_DIR") + " " + command + " >&2";
  Require(std::system(line.c_str()) == 0, line);
}

void TestTakesTheRatesOfTheJob() {
  torch::nn::Sequential model = ModelOf();
  const auto optimizer =
      kaon::torch::RemoteOptimizer::Create(model->named_parameters(), Options()).value();
  torch::optim::OptimizerOptions& options = optimizer->param_groups()[0].options();
  options.set_lr(0.005);
  Administer("group set all lr=0.04");
  Require(optimizer->RefreshGroups().ok(), "RefreshGroups");
  Require(options.get_lr() == 0.02, "the param_group lost its factor of a half");
}

void TestGoesBackToACheckpoint() {
  torch::nn::Sequential model = ModelOf();
  const auto optimizer =
      kaon::torch::RemoteOptimizer::Create(model->named_parameters(), Options()).value();
  const uint64_t saved_step = optimizer->applied_step();
  const uint64_t timeline = optimizer->timeline();
  const torch::Tensor saved = model->parameters()[0].detach().clone();
  Administer("checkpoint create saved");
  TrainOneStep(model, *optimizer, 1);
  Require(!torch::equal(saved, model->parameters()[0]), "a step changed nothing");
  Administer("checkpoint restore --yes saved");
  bool refused = false;
  try {
    TrainOneStep(model, *optimizer, 2);
  } catch (const c10::Error&) {
    refused = optimizer->status().code() == kaon::StatusCode::kFailedPrecondition;
  }
  Require(refused, "gradients of the weights before were used");
  Require(optimizer->timeline() == timeline + 1 && optimizer->applied_step() == saved_step,
          "it did not follow the job");
  Require(torch::equal(saved, model->parameters()[0]), "the weights are not the checkpoint's");
  TrainOneStep(model, *optimizer, 3);
  Require(optimizer->applied_step() == saved_step + 1, "it does not train after the restore");
}

}  // namespace

int main() {
  TestTrainsAsAdamW();
  TestAttachesAndPulls();
  TestTakesTheRatesOfTheJob();
  TestGoesBackToACheckpoint();
  std::cout << "10 steps are AdamW's within " << kTolerance << std::endl;
  return 0;
}
