// Options of a group of parameters: its optimizer rule and the rule's hyper-parameters. Plain
// values; any thread. C++17, standard library only. Fields and enumerators have the meaning and the
// numbers of proto kaon.v1. An unset field gets the value of the job's preset, or else the default
// that its comment names. The coordinator checks the ranges; its errors name field, value and
// range.
#ifndef KAON_CLIENT_KAON_OPTIMIZER_OPTIONS_H_
#define KAON_CLIENT_KAON_OPTIMIZER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kaon {

enum class Rule { kMuon = 1, kAdamW = 2, kSgd = 3, kLion = 4 };
enum class NewtonSchulzCoefficients {
  kJordan = 1,
  kPolarExpress = 2,
  kYou = 3,
  kPolarExpressExact = 4,
  kPolarExpress5S102 = 5,
  kPolarExpress5S105 = 6,
  kCans = 7,
  kDeepSeekV4 = 8,
  kCubic5 = 9,
  kCustom = 10
};
enum class NewtonSchulzRepeat { kCycle = 1, kLast = 2, kFixed = 3 };
enum class NormMode { kScaleInvariant = 1, kAddEps = 2, kClampEps = 3 };
enum class NewtonSchulzForm { kStandard = 1, kGram = 2 };
enum class UpdateScale {
  kOriginal = 1,
  kMatchRmsAdamW = 2,
  kNone = 3,
  kMaxDim = 4,
  kUnitRmsNorm = 5
};
enum class NewtonSchulzDType { kFloat32 = 1, kBFloat16 = 2, kFloat16 = 3 };
enum class MomentumForm { kEma = 1, kSum = 2 };
enum class DecayMode { kDecoupled = 1, kIndependent = 2, kL2 = 3, kPalm = 4 };
// Names the place of weights and optimizer state on a shard. No result depends on it. With kAuto
// the shard fills its memory first, and then its disk.
enum class Tier { kAuto = 1, kHost = 2, kDevice = 3, kNvme = 4 };
enum class StateDType { kFloat32 = 1, kBFloat16 = 2, kInt8 = 3, kSqrtUInt8 = 4 };
enum class AdamEpsMode { kOutside = 1, kUncorrected = 2 };
enum class ClipPolicy { kClip = 1, kExempt = 2 };
enum class MissingGradient { kSkip = 1, kZero = 2 };
enum class ScheduleKind { kConstant = 1, kCosine = 2, kLinear = 3, kWarmupStableDecay = 4 };

// One iteration maps each singular value s to a s + b s^3 + c2 s^5.
struct NewtonSchulzTriple {
  double a = 0;
  double b = 0;
  double c2 = 0;
};

struct NewtonSchulzOptions {
  // Set with kCustom only: 1 .. 99 triples.
  std::vector<NewtonSchulzTriple> custom;
  // Source of the triples after the last custom one; kLast.
  std::optional<NewtonSchulzRepeat> custom_repeat;
  // kScaleInvariant.
  std::optional<NormMode> norm_mode;
  // Used by kAddEps and kClampEps; 1e-7.
  std::optional<double> norm_eps;
  // kStandard.
  std::optional<NewtonSchulzForm> form;
  // With kGram: after these iterations; 2, or 2, 4, 6 and so on with more than 5.
  std::vector<uint32_t> gram_restarts;
};

struct MuonOptions {
  std::optional<double> momentum;  // 0.95
  std::optional<bool> nesterov;    // true
  // kJordan.
  std::optional<NewtonSchulzCoefficients> ns_coefficients;
  // Iterations; 5, or the only number that the coefficients allow.
  std::optional<uint32_t> ns_steps;
  // kMatchRmsAdamW.
  std::optional<UpdateScale> scale;
  // kBFloat16; kFloat32 if the other options do not tolerate bf16's rounding.
  std::optional<NewtonSchulzDType> ns_dtype;
  // kEma.
  std::optional<MomentumForm> momentum_form;
  std::optional<double> scale_extra;  // 1
  NewtonSchulzOptions newton_schulz;
};

struct AdamWOptions {
  std::optional<double> beta1;  // 0.9
  std::optional<double> beta2;  // 0.95
  std::optional<double> eps;    // 1e-8
  // kOutside.
  std::optional<AdamEpsMode> eps_mode;
  std::optional<bool> amsgrad;          // false
  std::optional<bool> bias_correction;  // true
  // Storage of exp_avg_sq and max_exp_avg_sq: kFloat32, or kSqrtUInt8 (1.06 bytes). kFloat32.
  std::optional<StateDType> exp_avg_sq_dtype;
};

struct SgdOptions {
  std::optional<double> momentum;   // 0
  std::optional<double> dampening;  // 0
  std::optional<bool> nesterov;     // false
};

struct LionOptions {
  std::optional<double> beta1;  // 0.95
  std::optional<double> beta2;  // 0.98
};

// Factor on the learning rate as a function of the applied steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t warmup_steps = 0;
  // The factor is final_factor from this step on. Leave it 0 with kConstant.
  uint64_t total_steps = 0;
  // Length of the decay; set with kWarmupStableDecay only.
  uint64_t decay_steps = 0;
  double final_factor = 0;
};

struct ParameterGroup {
  // Pattern: [a-z0-9_-]{1,64}.
  std::string name;
  // Required: a group has no default rule.
  std::optional<Rule> rule;
  // Required, unless a preset has a value for the rule.
  std::optional<double> lr;
  std::optional<double> weight_decay;  // 0
  // Options of another rule than the group's are an error.
  MuonOptions muon;
  AdamWOptions adamw;
  SgdOptions sgd;
  LionOptions lion;
  // kExempt for scale-invariant rules (Muon), kClip for all others.
  std::optional<ClipPolicy> clip_policy;
  // One of the job's norm groups. Empty: main.
  std::string norm_group;
  // kDecoupled; kL2 with kSgd.
  std::optional<DecayMode> decay_mode;
  // kFloat32.
  std::optional<StateDType> momentum_dtype;
  // kSkip.
  std::optional<MissingGradient> missing_gradient;
  std::optional<Schedule> schedule;
  // kAuto.
  std::optional<Tier> tier;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_OPTIMIZER_OPTIONS_H_
