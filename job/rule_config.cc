#include "job/rule_config.h"

namespace kaon::job {
namespace {

// The wire's enumerators are those of the kernels plus 1.
#define KAON_SAME_ENUMERATOR(wire, kernel) \
  static_assert(static_cast<int>(v1::wire) == static_cast<int>(kernels::kernel) + 1, #wire)
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_COEFFICIENTS_JORDAN, NsCoefficients::kJordan);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS, NsCoefficients::kPolarExpress);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_COEFFICIENTS_YOU, NsCoefficients::kYou);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_COEFFICIENTS_CUSTOM, NsCoefficients::kCustom);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_REPEAT_CYCLE, NsRepeat::kCycle);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_REPEAT_LAST, NsRepeat::kLast);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_REPEAT_FIXED, NsRepeat::kFixed);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_DTYPE_FLOAT32, NsDType::kFloat32);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_DTYPE_BFLOAT16, NsDType::kBFloat16);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_DTYPE_FLOAT16, NsDType::kFloat16);
KAON_SAME_ENUMERATOR(NORM_MODE_SCALE_INVARIANT, NormMode::kScaleInvariant);
KAON_SAME_ENUMERATOR(NORM_MODE_ADD_EPS, NormMode::kAddEps);
KAON_SAME_ENUMERATOR(NORM_MODE_CLAMP_EPS, NormMode::kClampEps);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_FORM_STANDARD, NsForm::kStandard);
KAON_SAME_ENUMERATOR(NEWTON_SCHULZ_FORM_GRAM, NsForm::kGram);
KAON_SAME_ENUMERATOR(UPDATE_SCALE_ORIGINAL, UpdateScale::kOriginal);
KAON_SAME_ENUMERATOR(UPDATE_SCALE_MATCH_RMS_ADAMW, UpdateScale::kMatchRmsAdamW);
KAON_SAME_ENUMERATOR(UPDATE_SCALE_UNIT_RMS_NORM, UpdateScale::kUnitRmsNorm);
KAON_SAME_ENUMERATOR(MOMENTUM_FORM_EMA, MomentumForm::kEma);
KAON_SAME_ENUMERATOR(MOMENTUM_FORM_SUM, MomentumForm::kSum);
KAON_SAME_ENUMERATOR(ADAM_EPS_MODE_OUTSIDE, AdamEpsMode::kOutside);
KAON_SAME_ENUMERATOR(ADAM_EPS_MODE_UNCORRECTED, AdamEpsMode::kUncorrected);
KAON_SAME_ENUMERATOR(DECAY_MODE_DECOUPLED, DecayMode::kDecoupled);
KAON_SAME_ENUMERATOR(DECAY_MODE_INDEPENDENT, DecayMode::kIndependent);
KAON_SAME_ENUMERATOR(DECAY_MODE_L2, DecayMode::kL2);
KAON_SAME_ENUMERATOR(DECAY_MODE_PALM, DecayMode::kPalm);
KAON_SAME_ENUMERATOR(STATE_DTYPE_FLOAT32, StateDType::kFloat32);
KAON_SAME_ENUMERATOR(STATE_DTYPE_BFLOAT16, StateDType::kBFloat16);
KAON_SAME_ENUMERATOR(STATE_DTYPE_INT8, StateDType::kInt8);
KAON_SAME_ENUMERATOR(STATE_DTYPE_SQRT_UINT8, StateDType::kSqrtUInt8);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_MATRIX, MatrixLayoutKind::kMatrix);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_BATCHED, MatrixLayoutKind::kBatched);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_CONV_FLATTEN, MatrixLayoutKind::kConvFlatten);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_SPLIT_ROWS, MatrixLayoutKind::kSplitRows);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_QKV_INTERLEAVED, MatrixLayoutKind::kQkvInterleaved);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_HEADS, MatrixLayoutKind::kHeads);
KAON_SAME_ENUMERATOR(MATRIX_LAYOUT_KIND_SPLIT_COLS, MatrixLayoutKind::kSplitCols);
#undef KAON_SAME_ENUMERATOR

template <typename Kernel, typename Wire>
Kernel FromWire(Wire value) {
  return static_cast<Kernel>(static_cast<int>(value) - 1);
}

kernels::NsCoefficients CoefficientsOf(v1::NewtonSchulzCoefficients set) {
  return FromWire<kernels::NsCoefficients>(set);
}

kernels::MuonConfig MuonOf(const v1::MuonOptions& options, const v1::ParameterSpec& parameter,
                           const v1::ParameterPlacement& placement) {
  kernels::MuonConfig muon;
  muon.momentum = options.momentum();
  muon.nesterov = options.nesterov();
  muon.momentum_form = FromWire<kernels::MomentumForm>(options.momentum_form());
  muon.newton_schulz = NewtonSchulzConfigOf(options);
  muon.scale = FromWire<kernels::UpdateScale>(options.scale());
  muon.scale_extra = options.scale_extra();
  muon.layout = LayoutOf(placement.layout());
  muon.layout.transposed = parameter.transposed();
  return muon;
}

kernels::AdamWConfig AdamWOf(const v1::AdamWOptions& options) {
  kernels::AdamWConfig adamw;
  adamw.beta1 = options.beta1();
  adamw.beta2 = options.beta2();
  adamw.eps = options.eps();
  adamw.eps_mode = FromWire<kernels::AdamEpsMode>(options.eps_mode());
  adamw.amsgrad = options.amsgrad();
  adamw.bias_correction = options.bias_correction();
  if (options.exp_avg_sq_dtype() != v1::STATE_DTYPE_UNSPECIFIED) {
    adamw.exp_avg_sq_dtype = FromWire<kernels::StateDType>(options.exp_avg_sq_dtype());
  }
  return adamw;
}

kernels::SgdConfig SgdOf(const v1::SgdOptions& options) {
  kernels::SgdConfig sgd;
  sgd.momentum = options.momentum();
  sgd.dampening = options.dampening();
  sgd.nesterov = options.nesterov();
  return sgd;
}

kernels::LionConfig LionOf(const v1::LionOptions& options) {
  kernels::LionConfig lion;
  lion.beta1 = options.beta1();
  lion.beta2 = options.beta2();
  return lion;
}

}  // namespace

kernels::NewtonSchulzConfig NewtonSchulzConfigOf(const v1::MuonOptions& muon) {
  const v1::NewtonSchulzOptions& options = muon.newton_schulz();
  kernels::NewtonSchulzConfig config;
  config.coefficients = CoefficientsOf(muon.ns_coefficients());
  for (const v1::NewtonSchulzTriple& triple : options.custom()) {
    config.custom.push_back({static_cast<float>(triple.a()), static_cast<float>(triple.b()),
                             static_cast<float>(triple.c2())});
  }
  if (!config.custom.empty()) {
    config.custom_repeat = FromWire<kernels::NsRepeat>(options.custom_repeat());
  }
  config.steps = static_cast<int>(muon.ns_steps());
  config.dtype = FromWire<kernels::NsDType>(muon.ns_dtype());
  config.norm_mode = FromWire<kernels::NormMode>(options.norm_mode());
  config.norm_eps = options.norm_eps();
  config.form = FromWire<kernels::NsForm>(options.form());
  config.gram_restarts.assign(options.gram_restarts().begin(), options.gram_restarts().end());
  return config;
}

kernels::MatrixLayout LayoutOf(const v1::MatrixLayout& layout) {
  kernels::MatrixLayout result;
  result.kind = FromWire<kernels::MatrixLayoutKind>(layout.kind());
  result.sizes.assign(layout.sizes().begin(), layout.sizes().end());
  result.num_heads = layout.num_heads();
  return result;
}

kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group,
                                 const v1::ParameterSpec& parameter,
                                 const v1::ParameterPlacement& placement) {
  const auto complete = [&](auto config) {
    config.weight_decay = group.weight_decay() * placement.weight_decay_multiplier();
    config.decay_mode = FromWire<kernels::DecayMode>(group.decay_mode());
    config.momentum_dtype = FromWire<kernels::StateDType>(group.momentum_dtype());
    return kernels::RuleConfig(config);
  };
  switch (group.rule()) {
    case v1::RULE_MUON:
      return complete(MuonOf(group.muon(), parameter, placement));
    case v1::RULE_SGD:
      return complete(SgdOf(group.sgd()));
    case v1::RULE_LION:
      return complete(LionOf(group.lion()));
    // There is no default, so that the compiler names a forgotten rule. Validation asks for a
    // config first and then rejects an invalid rule.
    case v1::RULE_ADAMW:
    case v1::RULE_UNSPECIFIED:
    case v1::Rule_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Rule_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return complete(AdamWOf(group.adamw()));
}

kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group) {
  v1::ParameterPlacement plain;
  plain.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
  plain.set_weight_decay_multiplier(1);
  return RuleConfigOf(group, v1::ParameterSpec(), plain);
}

bool IsClipExempt(const v1::ParameterGroup& group) {
  if (group.clip_policy() != v1::CLIP_POLICY_UNSPECIFIED) {
    return group.clip_policy() == v1::CLIP_POLICY_EXEMPT;
  }
  return kernels::IsScaleInvariant(RuleConfigOf(group));
}

}  // namespace kaon::job
