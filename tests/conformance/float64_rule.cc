#include "tests/conformance/float64_rule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "tests/kernels/reference/float64_element_wise.h"
#include "tests/kernels/reference/float64_muon.h"
#include "tests/kernels/reference/float64_newton_schulz.h"

namespace kaon::conformance {
namespace {

using kernels::DecayMode;
using kernels::MatrixLayoutKind;
using kernels::NsCoefficients;
using kernels::NsDType;
using kernels::NsRepeat;
using kernels::StateDType;
using kernels::UpdateScalars;

size_t Product(const std::vector<uint64_t>& shape) {
  size_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  return n;
}

// The reference identifies modes by the names of numerics.md. The switches have no default, so the
// compiler reports a missing case.
std::string NameOf(NsCoefficients set) {
  switch (set) {
    case NsCoefficients::kJordan:
      return "jordan";
    case NsCoefficients::kPolarExpress:
      return "polar_express";
    case NsCoefficients::kYou:
      return "you";
    case NsCoefficients::kPolarExpressExact:
      return "polar_express_exact";
    case NsCoefficients::kPolarExpress5S102:
      return "polar_express_5_s102";
    case NsCoefficients::kPolarExpress5S105:
      return "polar_express_5_s105";
    case NsCoefficients::kCans:
      return "cans";
    case NsCoefficients::kDeepSeekV4:
      return "deepseek_v4";
    case NsCoefficients::kCubic5:
      return "cubic5";
    case NsCoefficients::kCustom:
      break;
  }
  return "custom";
}

std::string NameOf(MatrixLayoutKind kind) {
  switch (kind) {
    case MatrixLayoutKind::kMatrix:
      return "matrix";
    case MatrixLayoutKind::kBatched:
      return "batched";
    case MatrixLayoutKind::kConvFlatten:
      return "conv_flatten";
    case MatrixLayoutKind::kSplitRows:
      return "split_rows";
    case MatrixLayoutKind::kQkvInterleaved:
      return "qkv_interleaved";
    case MatrixLayoutKind::kHeads:
      return "heads";
    case MatrixLayoutKind::kSplitCols:
      return "split_cols";
  }
  return "";
}

std::string NameOf(kernels::UpdateScale scale) {
  switch (scale) {
    case kernels::UpdateScale::kOriginal:
      return "original";
    case kernels::UpdateScale::kMatchRmsAdamW:
      return "match_rms_adamw";
    case kernels::UpdateScale::kNone:
      return "none";
    case kernels::UpdateScale::kMaxDim:
      return "max_dim";
    case kernels::UpdateScale::kUnitRmsNorm:
      return "unit_rms_norm";
  }
  return "";
}

std::string NameOf(DecayMode mode) {
  switch (mode) {
    case DecayMode::kDecoupled:
      return "decoupled";
    case DecayMode::kIndependent:
      return "independent";
    case DecayMode::kL2:
      return "l2";
    case DecayMode::kPalm:
      return "palm";
  }
  return "";
}

template <typename Config>
reference::WeightDecay DecayOf(const Config& config) {
  switch (config.decay_mode) {
    case DecayMode::kDecoupled:
      return {reference::Decay::kDecoupled, config.weight_decay};
    case DecayMode::kIndependent:
      return {reference::Decay::kIndependent, config.weight_decay};
    case DecayMode::kL2:
      return {reference::Decay::kL2, config.weight_decay};
    case DecayMode::kPalm:
      return {reference::Decay::kPalm, config.weight_decay};
  }
  return {};
}

// Returns one triple per step of a custom set, which repeats all triples or the last one ([N3]).
reference::Triples CustomTriples(const kernels::NewtonSchulzConfig& config) {
  const size_t count = config.custom.size();
  reference::Triples triples;
  for (size_t i = 0; i < static_cast<size_t>(config.steps); ++i) {
    const bool cycles = config.custom_repeat == NsRepeat::kCycle;
    const auto& t = config.custom.at(cycles ? i % count : std::min(i, count - 1));
    triples.push_back({t.a, t.b, t.c2});
  }
  return triples;
}

reference::NewtonSchulzCase CaseOf(const kernels::NewtonSchulzConfig& config, Stored stored) {
  reference::NewtonSchulzCase c;
  if (config.coefficients == NsCoefficients::kCustom) {
    c.triples = CustomTriples(config);
  } else {
    c.triples = reference::TriplesOfSet(NameOf(config.coefficients), config.steps);
    c.safety_factor = reference::SafetyFactorOfSet(NameOf(config.coefficients));
  }
  if (config.norm_mode == kernels::NormMode::kAddEps) c.add_eps = config.norm_eps;
  if (config.norm_mode == kernels::NormMode::kClampEps) c.clamp_eps = config.norm_eps;
  if (stored == Stored::kAsConfigured) {
    if (config.dtype == NsDType::kBFloat16) c.store = &reference::RoundToBFloat16;
    if (config.dtype == NsDType::kFloat16) c.store = &reference::RoundToFloat16;
  }
  c.gram = config.form == kernels::NsForm::kGram;
  c.gram_restarts = config.gram_restarts;
  return c;
}

reference::Layout LayoutOf(const kernels::MatrixLayout& layout,
                           const std::vector<uint64_t>& shape) {
  return {NameOf(layout.kind),
          {shape.begin(), shape.end()},
          {layout.sizes.begin(), layout.sizes.end()},
          static_cast<int64_t>(layout.num_heads)};
}

// The smallest bfloat16 that is not below x > 0.
double RoundUpToBFloat16(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int ulp = std::max(exponent - 8, -133);
  return std::ldexp(std::ceil(std::ldexp(x, -ulp)), ulp);
}

// Rounds to symmetric codes in groups of 32 with one scale ([Q1]). The scale is the least bfloat16
// that gives codes within 127.
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

uint32_t Scrambled(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Rounds roots to codes 1 .. 255 in groups of 32 with one scale ([Q2]). A draw of 16 bits rounds up
// or down; it depends on parameter, update and element. A root of 0 has the code 0.
void ThroughSqrtUInt8(const UpdateScalars& scalars, std::vector<double>& x) {
  const uint32_t seed =
      Scrambled(Scrambled(scalars.parameter_id) + static_cast<uint32_t>(scalars.t));
  for (size_t first = 0; first < x.size(); first += 32) {
    const size_t end = std::min(first + 32, x.size());
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::sqrt(x[i]));
    if (largest == 0) continue;
    const double scale = RoundUpToBFloat16(largest / 255);
    for (size_t i = first; i < end; ++i) {
      if (x[i] == 0) continue;
      const double draw = (Scrambled(seed ^ static_cast<uint32_t>(i)) >> 16) / 65536.0;
      const double code = std::floor(std::sqrt(x[i]) / scale + draw);
      x[i] = std::pow(scale * std::clamp(code, 1.0, 255.0), 2);
    }
  }
}

// Returns the values that second moments read back after they were stored as `dtype`.
std::vector<double> StoredAs(StateDType dtype, const UpdateScalars& scalars,
                             std::vector<double> x) {
  if (dtype == StateDType::kSqrtUInt8) ThroughSqrtUInt8(scalars, x);
  return x;
}

// Returns the values that a momentum buffer reads back after it was stored as `dtype`.
std::vector<double> StoredAs(StateDType dtype, std::vector<double> x) {
  if (dtype == StateDType::kInt8) ThroughInt8(x);
  if (dtype == StateDType::kBFloat16) {
    for (double& value : x) value = reference::RoundToBFloat16(value);
  }
  return x;
}

double RoundToFloat32(double x) { return reference::RoundToBits(x, 24, -149, 128); }

}  // namespace

int NaturalSteps(NsCoefficients set) {
  if (set == NsCoefficients::kCustom) return 5;
  return std::max(5, reference::SizeOfSet(NameOf(set)));
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
  std::visit([&](const auto& config) { Update(config, scalars, clipped, param); }, rule_);
}

void Float64Rule::Update(const kernels::MuonConfig& config, const UpdateScalars& scalars,
                         const std::vector<double>& grad, std::vector<double>& param) {
  reference::LayoutMuon muon;
  muon.lr = scalars.lr;
  muon.momentum = config.momentum;
  muon.nesterov = config.nesterov;
  muon.sums = config.momentum_form == kernels::MomentumForm::kSum;
  muon.weight_decay = config.weight_decay;
  muon.decay = NameOf(config.decay_mode);
  muon.scale = NameOf(config.scale);
  muon.scale_extra = config.scale_extra;
  muon.transposed = config.layout.transposed;
  muon.newton_schulz = CaseOf(config.newton_schulz, stored_);
  muon.layout = LayoutOf(config.layout, shape_);
  muon.buffer = Slot(0);
  muon.Step(grad, param);
  Slot(0) = StoredAs(config.momentum_dtype, muon.buffer);
}

void Float64Rule::Update(const kernels::AdamWConfig& config, const UpdateScalars& scalars,
                         const std::vector<double>& grad, std::vector<double>& param) {
  reference::Adam adam;
  adam.lr = scalars.lr;
  adam.beta1 = config.beta1;
  adam.beta2 = config.beta2;
  adam.eps = config.eps;
  adam.eps_beside_corrected_root = config.eps_mode == kernels::AdamEpsMode::kOutside;
  adam.amsgrad = config.amsgrad;
  adam.bias_correction = config.bias_correction;
  adam.decay = DecayOf(config);
  // fp32, or the squares that it has no numbers for would be seen ([A5]).
  adam.store = &RoundToFloat32;
  adam.m = Slot(0);
  adam.v = Slot(1);
  if (config.amsgrad) adam.largest_v = Slot(2);
  adam.t = scalars.t - 1;
  adam.Step(grad, param);
  Slot(0) = StoredAs(config.momentum_dtype, adam.m);
  Slot(1) = StoredAs(config.exp_avg_sq_dtype, scalars, adam.v);
  if (config.amsgrad) Slot(2) = StoredAs(config.exp_avg_sq_dtype, scalars, adam.largest_v);
}

void Float64Rule::Update(const kernels::SgdConfig& config, const UpdateScalars& scalars,
                         const std::vector<double>& grad, std::vector<double>& param) {
  reference::Sgd sgd;
  sgd.lr = scalars.lr;
  sgd.momentum = config.momentum;
  sgd.dampening = config.dampening;
  sgd.nesterov = config.nesterov;
  sgd.decay = DecayOf(config);
  if (config.momentum > 0 && scalars.t > 1) sgd.buffer = Slot(0);
  sgd.Step(grad, param);
  if (config.momentum > 0) Slot(0) = StoredAs(config.momentum_dtype, sgd.buffer);
}

void Float64Rule::Update(const kernels::LionConfig& config, const UpdateScalars& scalars,
                         const std::vector<double>& grad, std::vector<double>& param) {
  reference::Lion lion;
  lion.lr = scalars.lr;
  lion.beta1 = config.beta1;
  lion.beta2 = config.beta2;
  lion.decay = DecayOf(config);
  lion.m = Slot(0);
  lion.Step(grad, param);
  Slot(0) = StoredAs(config.momentum_dtype, lion.m);
}

}  // namespace kaon::conformance
