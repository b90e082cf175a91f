// Options of the orthogonalization of one group's updates (numerics.md, rules [N1]-[N7] and [S1]).
// Plain values; any thread.
#ifndef KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_
#define KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_

#include <vector>

namespace kaon::kernels {

// Maximum number of steps (rule [N3]); also of triples in a custom set.
inline constexpr int kMaxNewtonSchulzSteps = 99;

// Up to this many steps the Gram form restarts once, with more steps more often; the number was
// measured (rule [N7]).
inline constexpr int kMaxStepsWithOneRestart = 5;

// Coefficient sets (table [N2]); kCustom has its triples in the config.
enum class NsCoefficients {
  kJordan,
  kPolarExpress,
  kYou,
  kPolarExpressExact,
  kPolarExpress5S102,
  kPolarExpress5S105,
  kCans,
  kDeepSeekV4,
  kCubic5,
  kCustom
};

// Triples of the steps after the last triple (rule [N3]).
enum class NsRepeat { kCycle, kLast, kFixed };

// Factor on the orthogonalized update by fan_out and fan_in (table [S1]).
enum class UpdateScale { kOriginal, kMatchRmsAdamW, kNone, kMaxDim, kUnitRmsNorm };

// Storage type of X, A and B between products; sums are fp32 in every mode (rule [N6]).
enum class NsDType { kFloat32, kBFloat16, kFloat16 };

// Normalisation of the input (rule [N5]).
enum class NormMode { kScaleInvariant, kAddEps, kClampEps };

// Form of the iteration: on X (formula [N1]), or on its Gram matrix (formula [N7]).
enum class NsForm { kStandard, kGram };

// Polynomial a s + b s^3 + c2 s^5 that one step applies to every singular value s (formula [N1]).
struct NewtonSchulzTriple {
  float a = 0;
  float b = 0;
  float c2 = 0;
};

struct NewtonSchulzConfig {
  NsCoefficients coefficients = NsCoefficients::kJordan;
  // Set with kCustom only.
  std::vector<NewtonSchulzTriple> custom;
  NsRepeat custom_repeat = NsRepeat::kLast;
  int steps = 5;
  NsDType dtype = NsDType::kFloat32;
  NormMode norm_mode = NormMode::kScaleInvariant;
  // Used by kAddEps and kClampEps.
  double norm_eps = 1e-7;
  NsForm form = NsForm::kStandard;
  // Used by kGram: iterations after which it restarts, ascending.
  std::vector<int> gram_restarts;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_
