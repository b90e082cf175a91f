// Options of the orthogonalization of one group's updates ([N1]-[N7], [S1]).
// Plain values; any thread.
#ifndef KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_
#define KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_

#include <vector>

namespace kaon::kernels {

// [N3]. Triples of a custom set, as many at most.
inline constexpr int kMaxNewtonSchulzSteps = 99;

// [N7], measured: the Gram form restarts once with so many steps, more often with more.
inline constexpr int kMaxStepsWithOneRestart = 5;

// [N2]; kCustom has its triples in the config.
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

// After the last triple ([N3]).
enum class NsRepeat { kCycle, kLast, kFixed };

// Factor on the orthogonalized update by fan_out and fan_in ([S1]).
enum class UpdateScale { kOriginal, kMatchRmsAdamW, kNone, kMaxDim, kUnitRmsNorm };

// Storage of X, A and B between products; sums are fp32 in every mode ([N6]).
enum class NsDType { kFloat32, kBFloat16, kFloat16 };

// [N5].
enum class NormMode { kScaleInvariant, kAddEps, kClampEps };

// [N1], [N7].
enum class NsForm { kStandard, kGram };

// One step's polynomial a s + b s^3 + c2 s^5 on every singular value ([N1]).
struct NewtonSchulzTriple {
  float a = 0;
  float b = 0;
  float c2 = 0;
};

struct NewtonSchulzConfig {
  NsCoefficients coefficients = NsCoefficients::kJordan;
  // With kCustom only.
  std::vector<NewtonSchulzTriple> custom;
  NsRepeat custom_repeat = NsRepeat::kLast;
  int steps = 5;
  NsDType dtype = NsDType::kFloat32;
  NormMode norm_mode = NormMode::kScaleInvariant;
  // With kAddEps and kClampEps.
  double norm_eps = 1e-7;
  NsForm form = NsForm::kStandard;
  // With kGram: iterations after which it restarts, ascending.
  std::vector<int> gram_restarts;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NEWTON_SCHULZ_CONFIG_H_
