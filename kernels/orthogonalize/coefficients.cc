#include "kernels/orthogonalize/coefficients.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/mutation.h"

namespace kaon::kernels {
namespace {

struct DoubleTriple {
  double a;
  double b;
  double c2;
};

// Returns the polynomial of s / safety; rounded to fp32 at the very end.
constexpr NewtonSchulzTriple DividedBy(double safety, const DoubleTriple& t) {
  const double cubed = safety * safety * safety;
  return {static_cast<float>(t.a / safety), static_cast<float>(t.b / cubed),
          static_cast<float>(t.c2 / (cubed * safety * safety))};
}

// The paper's own numbers, before any division.
constexpr DoubleTriple kPolarExpressPaper[] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
    {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
    {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
    {1.875, -1.25, 0.375}};
constexpr size_t kNumPolarExpress = std::size(kPolarExpressPaper);

// All but the last are divided: the last has the iteration's fixed point 1.
constexpr std::array<NewtonSchulzTriple, kNumPolarExpress> ExactPolarExpress() {
  std::array<NewtonSchulzTriple, kNumPolarExpress> triples{};
  for (size_t i = 0; i < kNumPolarExpress; ++i) {
    triples[i] = DividedBy(i + 1 < kNumPolarExpress ? 1.01 : 1.0, kPolarExpressPaper[i]);
  }
  return triples;
}

// Returns the first five, every one divided.
constexpr std::array<NewtonSchulzTriple, 5> FivePolarExpressDividedBy105() {
  std::array<NewtonSchulzTriple, 5> triples{};
  for (size_t i = 0; i < triples.size(); ++i) triples[i] = DividedBy(1.05, kPolarExpressPaper[i]);
  return triples;
}

constexpr NewtonSchulzTriple kJordan[] = {{3.4445f, -4.7750f, 2.0315f}};

constexpr NewtonSchulzTriple kPolarExpress[] = {
    {8.2051f, -22.9019f, 16.4607f}, {4.0664f, -2.8612f, 0.5184f}, {3.9096f, -2.8234f, 0.5250f},
    {3.2856f, -2.4153f, 0.4853f},   {2.2779f, -1.6198f, 0.3985f}, {1.8726f, -1.2307f, 0.3585f},
    {1.8564f, -1.2132f, 0.3568f},   {1.8750f, -1.2500f, 0.3750f}};

constexpr NewtonSchulzTriple kYou[] = {{4.0848f, -6.8946f, 2.9270f},
                                       {3.9505f, -6.3029f, 2.6377f},
                                       {3.7418f, -5.5913f, 2.3037f},
                                       {2.8769f, -3.1427f, 1.2046f},
                                       {2.8366f, -3.0525f, 1.2012f}};

constexpr std::array<NewtonSchulzTriple, kNumPolarExpress> kPolarExpressExact = ExactPolarExpress();

constexpr NewtonSchulzTriple kPolarExpress5S102[] = {
    {8.156554524902461f, -22.48329292557795f, 15.878769915207462f},
    {4.042929935166739f, -2.808917465908714f, 0.5000178451051316f},
    {3.8916678022926607f, -2.772484153217685f, 0.5060648178503393f},
    {3.285753657755655f, -2.3681294933425376f, 0.46449024233003106f},
    {2.3465413258596377f, -1.7097828382687081f, 0.42323551169305323f}};

constexpr std::array<NewtonSchulzTriple, 5> kPolarExpress5S105 = FivePolarExpressDividedBy105();

constexpr NewtonSchulzTriple kCans[] = {{8.4703f, -25.1081f, 18.6293f},
                                        {4.1828f, -3.1087f, 0.5806f},
                                        {3.9619f, -2.9541f, 0.5630f},
                                        {3.2866f, -2.4647f, 0.5074f},
                                        {2.2737f, -1.6447f, 0.4162f}};

constexpr NewtonSchulzTriple kDeepSeekV4[] = {
    kJordan[0], kJordan[0], kJordan[0], kJordan[0],       kJordan[0],
    kJordan[0], kJordan[0], kJordan[0], {2, -1.5f, 0.5f}, {2, -1.5f, 0.5f}};

constexpr NewtonSchulzTriple kCubic5[] = {{3.3656576f, -3.3420992f, 0},
                                          {2.5744352f, -1.4957376f, 0},
                                          {2.5368962f, -1.4312570f, 0},
                                          {2.4418906f, -1.2764040f, 0},
                                          {2.2230472f, -0.9630650f, 0}};

const NewtonSchulzCoefficientSet kSets[] = {
    {NsCoefficients::kJordan, "jordan", kJordan, NsRepeat::kLast, 1},
    {NsCoefficients::kPolarExpress, "polar_express", kPolarExpress, NsRepeat::kLast, 1},
    {NsCoefficients::kYou, "you", kYou, NsRepeat::kCycle, 1},
    {NsCoefficients::kPolarExpressExact, "polar_express_exact", kPolarExpressExact, NsRepeat::kLast,
     1},
    {NsCoefficients::kPolarExpress5S102, "polar_express_5_s102", kPolarExpress5S102,
     NsRepeat::kFixed, 1.02},
    {NsCoefficients::kPolarExpress5S105, "polar_express_5_s105", kPolarExpress5S105,
     NsRepeat::kFixed, 1},
    // Above 1 its polynomials run away: 1 + 1e-5 ends at 2.6. Below 1 its band is the same for any
    // factor, so the usual factor of polar_express keeps the input away from there.
    {NsCoefficients::kCans, "cans", kCans, NsRepeat::kLast, 1.01},
    {NsCoefficients::kDeepSeekV4, "deepseek_v4", kDeepSeekV4, NsRepeat::kFixed, 1},
    {NsCoefficients::kCubic5, "cubic5", kCubic5, NsRepeat::kFixed, 1},
};

}  // namespace

absl::Span<const NewtonSchulzCoefficientSet> NewtonSchulzCoefficientSets() { return kSets; }

absl::optional<NewtonSchulzCoefficientSet> FindCoefficientSet(const NewtonSchulzConfig& config) {
  if (config.coefficients == NsCoefficients::kCustom) {
    return NewtonSchulzCoefficientSet{NsCoefficients::kCustom, "custom", config.custom,
                                      config.custom_repeat, 1};
  }
  for (const NewtonSchulzCoefficientSet& set : kSets) {
    if (set.id == config.coefficients) return set;
  }
  return absl::nullopt;
}

NewtonSchulzTriple TripleOfStep(const NewtonSchulzCoefficientSet& set, int step) {
  const size_t index = static_cast<size_t>(step);
  const bool cycles = set.repeat == NsRepeat::kCycle || Mutated(Mutation::kLastTripleNotRepeated);
  if (cycles) return set.triples[index % set.triples.size()];
  return set.triples[std::min(index, set.triples.size() - 1)];
}

}  // namespace kaon::kernels
