// Numeric bugs that can be built in, one at a time, to verify that tests find each of them
// (tests/mutation.sh). KAON_MUTATION is the number of the bug in this build. In every product it is
// 0, and Mutated() is a constant that leaves no trace.
// A mutation is one `Mutated(...) ? wrong : right` in one place, in the files that its line names.
// A mutation in a header counts in all sources that include it. Constants only; any thread.
#ifndef KAON_KERNELS_MUTATION_H_
#define KAON_KERNELS_MUTATION_H_

#include "kernels/host_device.h"

#ifndef KAON_MUTATION
#define KAON_MUTATION 0
#endif

namespace kaon::kernels {

// tests/mutation.sh reads this list: one line each, `kName = number,  // sources to build with it`.
// clang-format off
enum class Mutation {
  kScaleArgumentsSwapped = 1,  // kernels/(cpu/muon_step|orthogonality|optimizer_rule)
  kDecayAfterUpdate = 2,  // kernels/cpu/muon_step
  kMomentumAliased = 3,  // kernels/cpu/muon_step
  kEpsInsideRoot = 4,  // kernels/cpu/cpu_backend
  kClipAfterMomentum = 5,  // kernels/cpu/muon_step
  kNotTransposedBack = 6,  // kernels/orthogonalize/newton_schulz
  kBiasCorrectionOneBehind = 7,  // kernels/cpu/cpu_backend
  kNesterovWithoutFreshMomentum = 8,  // kernels/cpu/muon_step
  kNotNormalised = 9,  // kernels/orthogonalize/newton_schulz
  kSafetyFactorMissing = 10,  // kernels/orthogonalize/newton_schulz
  kGramWithoutRestart = 11,  // kernels/orthogonalize/newton_schulz
  kLastTripleNotRepeated = 12,  // kernels/orthogonalize/coefficients
  kSplitRowsOffByOne = 13,  // kernels/matrix_layout
  kConvScaleFromKernelSize = 14,  // kernels/cpu/muon_step
  kDecayWithScaledRate = 15,  // kernels/cpu/muon_step
  kEmaAndSumSwapped = 16,  // kernels/cpu/muon_step
  kInt8ScaleRoundedDown = 17,  // kernels/state_codec
  kInt8DirectionFromState = 18,  // kernels/cpu/muon_step
  kFoldInFloat16 = 19,  // kernels/reduce/fold
  kLionUsesNewMomentum = 20,  // kernels/cpu/cpu_backend
  kLossScaleNotTakenOut = 21,  // kernels/reduce/mean
  kCopyCountedInNorm = 22,  // kernels/reduce/grad_clip
  kClipFloorIgnored = 23,  // kernels/reduce/grad_clip
  kExemptCountedAsLive = 24,  // kernels/reduce/grad_clip
  kScheduleAdvancesOnSkip = 25,  // job/decide
};
// clang-format on

KAON_HOST_DEVICE constexpr bool Mutated(Mutation mutation) {
  return static_cast<int>(mutation) == KAON_MUTATION;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_MUTATION_H_
