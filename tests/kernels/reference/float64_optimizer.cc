#include "tests/kernels/reference/float64_optimizer.h"

#include <algorithm>
#include <cmath>

namespace kaon::reference {
namespace {

Matrix RoundedToBFloat16(const Matrix& x) { return x.unaryExpr(&RoundToBFloat16); }

template <typename Store>
Matrix Iterate(const Matrix& g, const Triples& triples, const Store& store) {
  const double norm = g.norm();
  if (norm == 0) return Matrix::Zero(g.rows(), g.cols());
  const bool tall = g.rows() > g.cols();
  Matrix x = tall ? Matrix(g.transpose() / norm) : Matrix(g / norm);
  x = store(x);
  for (const auto& [a, b, c] : triples) {
    const Matrix gram = store(x * x.transpose());
    const Matrix polynomial = store(b * gram + c * gram * gram);
    x = store(a * x + polynomial * x);
  }
  return tall ? Matrix(x.transpose()) : x;
}

}  // namespace

Triples Jordan(int steps) { return Triples(steps, {3.4445, -4.7750, 2.0315}); }

Triples PolarExpress(int steps) {
  Triples triples = {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184},
                     {3.9096, -2.8234, 0.5250},   {3.2856, -2.4153, 0.4853},
                     {2.2779, -1.6198, 0.3985},   {1.8726, -1.2307, 0.3585},
                     {1.8564, -1.2132, 0.3568},   {1.8750, -1.2500, 0.3750}};
  const std::array<double, 3> last = triples.back();
  triples.resize(steps, last);
  return triples;
}

double RoundToBFloat16(double x) {
  if (x == 0) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  // 8 significant bits; nearbyint rounds ties to even.
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

Matrix NewtonSchulz(const Matrix& g, const Triples& triples) {
  return Iterate(g, triples, [](const Matrix& x) { return x; });
}

Matrix NewtonSchulzRoundingToBFloat16(const Matrix& g, const Triples& triples) {
  return Iterate(g, triples, RoundedToBFloat16);
}

double ScaleOriginal(double fan_out, double fan_in) {
  return std::sqrt(std::max(1.0, fan_out / fan_in));
}

double ScaleMatchRmsAdamW(double fan_out, double fan_in) {
  return 0.2 * std::sqrt(std::max(fan_out, fan_in));
}

void AdamW::Step(const std::vector<double>& grad, std::vector<double>& param) {
  m.resize(grad.size(), 0.0);
  v.resize(grad.size(), 0.0);
  ++t;
  for (size_t i = 0; i < grad.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * grad[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grad[i] * grad[i];
    const double m_hat = m[i] / (1 - std::pow(beta1, t));
    const double v_hat = v[i] / (1 - std::pow(beta2, t));
    param[i] -= lr * weight_decay * param[i];
    param[i] -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
}

void Muon::Step(const Matrix& grad, Matrix& param) {
  if (buffer.size() == 0) buffer = Matrix::Zero(grad.rows(), grad.cols());
  buffer = momentum * buffer + (1 - momentum) * grad;
  const Matrix direction = nesterov ? Matrix(momentum * buffer + (1 - momentum) * grad) : buffer;
  const Matrix update = scale * NewtonSchulz(direction, triples);
  param = param * (1 - lr * weight_decay) - lr * update;
}

std::vector<double> WeightedMean(const std::vector<std::vector<double>>& gradients,
                                 const std::vector<double>& weights, double loss_scale) {
  std::vector<double> mean(gradients.at(0).size(), 0.0);
  double total = 0;
  for (size_t worker = 0; worker < gradients.size(); ++worker) {
    total += weights[worker];
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += weights[worker] * gradients[worker][i];
  }
  for (double& x : mean) x = x / total / loss_scale;
  return mean;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double ClipFactor(const std::vector<double>& live_norms, double max_norm) {
  if (max_norm == 0 || live_norms.empty()) return 1;
  return std::min(1.0, max_norm / (Norm(live_norms) + 1e-6));
}

}  // namespace kaon::reference
