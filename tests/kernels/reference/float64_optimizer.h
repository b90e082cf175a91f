// Textbook float64 versions of every numeric path, written from docs and papers and sharing no code
// with kernels/: what the kernels are compared with. Configuration is passed as plain numbers for
// the same reason. Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_

#include <array>
#include <cstdint>
#include <eigen3/Eigen/Core>
#include <vector>

namespace kaon::reference {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Triples = std::vector<std::array<double, 3>>;

// The triples of `steps` iterations ([N2], [N3]).
Triples Jordan(int steps);
Triples PolarExpress(int steps);

// Nearest bfloat16, ties to even; finite values in bfloat16's normal range and zero.
double RoundToBFloat16(double x);

// Odd polynomials on g / ||g||_F ([N1]); zero for zero.
Matrix NewtonSchulz(const Matrix& g, const Triples& triples);

// The same, with X, A and B rounded to bfloat16 whenever they are stored ([N6], [N9]).
Matrix NewtonSchulzRoundingToBFloat16(const Matrix& g, const Triples& triples);

// [S1] `original` and `match_rms_adamw` for (fan_out, fan_in).
double ScaleOriginal(double fan_out, double fan_in);
double ScaleMatchRmsAdamW(double fan_out, double fan_in);

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  std::vector<double> m, v;
  int64_t t = 0;

  void Step(const std::vector<double>& grad, std::vector<double>& param);
};

struct Muon {
  double lr, momentum, weight_decay, scale;
  bool nesterov;
  Triples triples;
  Matrix buffer;

  void Step(const Matrix& grad, Matrix& param);
};

// sum_i weight_i g_i / sum_i weight_i / loss_scale.
std::vector<double> WeightedMean(const std::vector<std::vector<double>>& gradients,
                                 const std::vector<double>& weights, double loss_scale);

double Norm(const std::vector<double>& x);

// [C5] with the norm over the live groups ([C8]).
double ClipFactor(const std::vector<double>& live_norms, double max_norm);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_
