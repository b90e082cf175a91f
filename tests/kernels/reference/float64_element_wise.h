// Textbook float64 versions of the element-wise rules with all their modes, written from
// numerics.md 1.4 and the papers. They share no code with kernels/; they take plain numbers for the
// same reason. Each object belongs to one thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_ELEMENT_WISE_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_ELEMENT_WISE_H_

#include <cstdint>
#include <vector>

namespace kaon::reference {

// The decay modes of the optimizers ([W1]).
enum class Decay { kDecoupled, kIndependent, kL2, kPalm };

struct WeightDecay {
  Decay mode = Decay::kDecoupled;
  double amount = 0;

  // Changes `grad` as it enters the rule, and `param` before the update is subtracted.
  void Apply(double lr, double& grad, double& param) const;
};

// Adam with its modes of eps, decay, amsgrad and bias correction ([A1]-[A5]).
struct Adam {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool eps_beside_corrected_root = true;
  bool amsgrad = false;
  bool bias_correction = true;
  WeightDecay decay = {};
  // Rounds the second moment whenever it is stored; null = exact.
  double (*store)(double) = nullptr;

  void Step(const std::vector<double>& grad, std::vector<double>& param);

  std::vector<double> m = {}, v = {}, largest_v = {};
  int64_t t = 0;
};

// SGD with momentum, dampening and Nesterov ([G1]).
struct Sgd {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  WeightDecay decay = {};

  void Step(const std::vector<double>& grad, std::vector<double>& param);

  // Empty until the first step.
  std::vector<double> buffer = {};
};

// Lion, which steps by the sign of a mix of momentum and gradient ([G2]).
struct Lion {
  double lr = 0;
  double beta1 = 0.95;
  double beta2 = 0.98;
  WeightDecay decay = {};

  void Step(const std::vector<double>& grad, std::vector<double>& param);

  std::vector<double> m = {};
  // Smallest |b1 m + (1 - b1) g| that element i ever had; its sign was the update.
  std::vector<double> closest_to_tie = {};
};

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_ELEMENT_WISE_H_
