#include "tests/conformance/float64_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "tests/conformance/float64_blocks.h"

namespace kaon::conformance {
namespace {

using kernels::DecayMode;
using kernels::StateDType;
using kernels::UpdateScalars;

size_t Product(const std::vector<uint64_t>& shape) {
  size_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  return n;
}

// [W1] `l2`: before the update, on the clipped gradient.
template <typename Config>
void DecayIntoGradient(const Config& config, const std::vector<double>& param,
                       std::vector<double>& grad) {
  if (config.decay_mode != DecayMode::kL2) return;
  for (size_t i = 0; i < grad.size(); ++i) grad[i] += config.weight_decay * param[i];
}

// [W1], all modes but l2.
template <typename Config>
double DecayFactor(const Config& config, double lr) {
  switch (config.decay_mode) {
    case DecayMode::kDecoupled:
      return 1 - lr * config.weight_decay;
    case DecayMode::kIndependent:
      return 1 - config.weight_decay;
    case DecayMode::kPalm:
      return 1 - config.weight_decay * lr * lr;
    case DecayMode::kL2:
      break;
  }
  return 1;
}

double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// The smallest bfloat16 that is not below x > 0.
double RoundUpToBFloat16(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int ulp = std::max(exponent - 8, -133);
  return std::ldexp(std::ceil(std::ldexp(x, -ulp)), ulp);
}

// [Q1]: symmetric, 32 at a time with one scale, the least bfloat16 that gives codes within 127.
void ThroughInt8(std::vector<double>& x) {
  for (size_t first = 0; first < x.size(); first += 32) {
    const size_t end = std::min(first + 32, x.size());
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    if (largest == 0) continue;
    const double scale = RoundUpToBFloat16(largest / 127);
    for (size_t i = first; i < end; ++i) x[i] = std::nearbyint(x[i] / scale) * scale;
  }
}

}  // namespace

std::vector<double> StoredAs(StateDType dtype, std::vector<double> x) {
  if (dtype == StateDType::kInt8) ThroughInt8(x);
  if (dtype == StateDType::kBFloat16) {
    for (double& value : x) value = RoundToBits(value, 8, -133, 128);
  }
  return x;
}

Float64Rule::Float64Rule(kernels::RuleConfig rule, std::vector<uint64_t> shape, Stored stored)
    : rule_(std::move(rule)),
      shape_(std::move(shape)),
      stored_(stored),
      num_elements_(Product(shape_)) {}

std::vector<double>& Float64Rule::Slot(size_t index) {
  if (state_.size() <= index) state_.resize(index + 1, std::vector<double>(num_elements_, 0.0));
  return state_[index];
}

void Float64Rule::Step(const UpdateScalars& scalars, const std::vector<double>& grad,
                       std::vector<double>& param) {
  std::vector<double> clipped = grad;
  for (double& g : clipped) g *= scalars.clip_factor;
  std::visit(
      [&](const auto& config) {
        DecayIntoGradient(config, param, clipped);
        Update(config, scalars, clipped, param);
      },
      rule_);
}

void Float64Rule::Update(const kernels::MuonConfig& config, const UpdateScalars& scalars,
                         std::vector<double> grad, std::vector<double>& param) {
  const double share =
      config.momentum_form == kernels::MomentumForm::kEma ? 1 - config.momentum : 1;
  std::vector<double>& momentum = Slot(0);
  std::vector<double> direction(num_elements_);
  for (size_t i = 0; i < num_elements_; ++i) {
    momentum[i] = config.momentum * momentum[i] + share * grad[i];
    direction[i] = config.nesterov ? config.momentum * momentum[i] + share * grad[i] : momentum[i];
  }
  momentum = StoredAs(config.momentum_dtype, momentum);
  std::vector<double> update(num_elements_);
  for (const Block& block : BlocksOf(config.layout, shape_)) {
    const Matrix x = block.Cut(direction);
    const double scale = ScaleOf(config, x.rows(), x.cols());
    block.Join(scale * Orthogonalize(config.newton_schulz, stored_, x), update);
  }
  const double decay = DecayFactor(config, scalars.lr);
  for (size_t i = 0; i < num_elements_; ++i) param[i] = decay * param[i] - scalars.lr * update[i];
}

void Float64Rule::Update(const kernels::AdamWConfig& config, const UpdateScalars& scalars,
                         std::vector<double> grad, std::vector<double>& param) {
  if (config.amsgrad) Slot(2);
  Slot(1);
  std::vector<double>& m = Slot(0);
  std::vector<double>& v = Slot(1);
  const double t = static_cast<double>(scalars.t);
  const double c1 = config.bias_correction ? 1 - std::pow(config.beta1, t) : 1;
  const double c2 = config.bias_correction ? 1 - std::pow(config.beta2, t) : 1;
  const double decay = DecayFactor(config, scalars.lr);
  for (size_t i = 0; i < num_elements_; ++i) {
    m[i] = config.beta1 * m[i] + (1 - config.beta1) * grad[i];
    // fp32, or the squares that it has no numbers for would be seen ([A5]).
    v[i] = RoundToBits(config.beta2 * v[i] + (1 - config.beta2) * grad[i] * grad[i], 24, -149, 128);
    double second = v[i];
    if (config.amsgrad) second = Slot(2)[i] = std::max(Slot(2)[i], v[i]);
    const double u = config.eps_mode == kernels::AdamEpsMode::kOutside
                         ? (m[i] / c1) / (std::sqrt(second / c2) + config.eps)
                         : m[i] / (std::sqrt(second) + config.eps) * std::sqrt(c2) / c1;
    param[i] = decay * param[i] - scalars.lr * u;
  }
  m = StoredAs(config.momentum_dtype, m);
}

void Float64Rule::Update(const kernels::SgdConfig& config, const UpdateScalars& scalars,
                         std::vector<double> grad, std::vector<double>& param) {
  const double decay = DecayFactor(config, scalars.lr);
  for (size_t i = 0; i < num_elements_; ++i) {
    double u = grad[i];
    if (config.momentum > 0) {
      double& buffer = Slot(0)[i];
      buffer =
          scalars.t == 1 ? grad[i] : config.momentum * buffer + (1 - config.dampening) * grad[i];
      u = config.nesterov ? grad[i] + config.momentum * buffer : buffer;
    }
    param[i] = decay * param[i] - scalars.lr * u;
  }
  if (config.momentum > 0) Slot(0) = StoredAs(config.momentum_dtype, Slot(0));
}

void Float64Rule::Update(const kernels::LionConfig& config, const UpdateScalars& scalars,
                         std::vector<double> grad, std::vector<double>& param) {
  const double decay = DecayFactor(config, scalars.lr);
  std::vector<double>& m = Slot(0);
  for (size_t i = 0; i < num_elements_; ++i) {
    const double u = Sign(config.beta1 * m[i] + (1 - config.beta1) * grad[i]);
    m[i] = config.beta2 * m[i] + (1 - config.beta2) * grad[i];
    param[i] = decay * param[i] - scalars.lr * u;
  }
  m = StoredAs(config.momentum_dtype, m);
}

}  // namespace kaon::conformance
