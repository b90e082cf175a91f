#include "tests/conformance/float64_orthogonalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace kaon::conformance {
namespace {

using kernels::NewtonSchulzConfig;
using kernels::NormMode;
using kernels::NsCoefficients;
using kernels::NsDType;
using kernels::NsForm;
using kernels::NsRepeat;

// A set as [N2] lists it.
struct CoefficientSet {
  Triples triples;
  NsRepeat repeat;
  // Divides the normalised input.
  double safety = 1;
};

const Triples kExact = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                        {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                        {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                        {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                        {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                        {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                        {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
                        {1.875, -1.25, 0.375}};

// The paper's `count` first triples of p(s / divisor), all of them or all but the last.
Triples Damped(size_t count, double divisor, bool last_too) {
  Triples triples(kExact.begin(), kExact.begin() + count);
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 == count && !last_too) break;
    for (int k = 0; k < 3; ++k) triples[i][k] /= std::pow(divisor, 2 * k + 1);
  }
  return triples;
}

CoefficientSet DeepSeekV4() {
  CoefficientSet set{Triples(8, {3.4445, -4.7750, 2.0315}), NsRepeat::kFixed};
  set.triples.insert(set.triples.end(), 2, {2, -1.5, 0.5});
  return set;
}

CoefficientSet SetOf(NsCoefficients id) {
  switch (id) {
    case NsCoefficients::kJordan:
      return {{{3.4445, -4.7750, 2.0315}}, NsRepeat::kLast};
    case NsCoefficients::kPolarExpress:
      return {reference::PolarExpress(8), NsRepeat::kLast};
    case NsCoefficients::kYou:
      return {{{4.0848, -6.8946, 2.9270},
               {3.9505, -6.3029, 2.6377},
               {3.7418, -5.5913, 2.3037},
               {2.8769, -3.1427, 1.2046},
               {2.8366, -3.0525, 1.2012}},
              NsRepeat::kCycle};
    case NsCoefficients::kPolarExpressExact:
      return {Damped(8, 1.01, false), NsRepeat::kLast};
    case NsCoefficients::kPolarExpress5S102:
      return {{{8.156554524902461, -22.48329292557795, 15.878769915207462},
               {4.042929935166739, -2.808917465908714, 0.5000178451051316},
               {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
               {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
               {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
              NsRepeat::kFixed,
              1.02};
    case NsCoefficients::kPolarExpress5S105:
      return {Damped(5, 1.05, true), NsRepeat::kFixed};
    case NsCoefficients::kCans:
      return {{{8.4703, -25.1081, 18.6293},
               {4.1828, -3.1087, 0.5806},
               {3.9619, -2.9541, 0.5630},
               {3.2866, -2.4647, 0.5074},
               {2.2737, -1.6447, 0.4162}},
              NsRepeat::kLast};
    case NsCoefficients::kDeepSeekV4:
      return DeepSeekV4();
    case NsCoefficients::kCubic5:
      return {{{3.3656576, -3.3420992, 0},
               {2.5744352, -1.4957376, 0},
               {2.5368962, -1.4312570, 0},
               {2.4418906, -1.2764040, 0},
               {2.2230472, -0.9630650, 0}},
              NsRepeat::kFixed};
    case NsCoefficients::kCustom:
      break;
  }
  return {};
}

CoefficientSet SetOf(const NewtonSchulzConfig& config) {
  if (config.coefficients != NsCoefficients::kCustom) return SetOf(config.coefficients);
  CoefficientSet set{{}, config.custom_repeat};
  for (const auto& t : config.custom) set.triples.push_back({t.a, t.b, t.c2});
  return set;
}

class Rounding {
 public:
  Rounding(NsDType dtype, Stored stored)
      : dtype_(stored == Stored::kExact ? NsDType::kFloat32 : dtype) {}

  Matrix operator()(const Matrix& x) const {
    if (dtype_ == NsDType::kBFloat16) return x.unaryExpr(&reference::RoundToBFloat16);
    if (dtype_ == NsDType::kFloat16) return x.unaryExpr(&RoundToFloat16);
    return x;
  }

 private:
  NsDType dtype_;
};

// What `g`, not zero, is divided by ([N5]).
double Divisor(const NewtonSchulzConfig& config, const Matrix& g) {
  const double norm = g.norm();
  const double safety = SetOf(config).safety;
  if (config.norm_mode == NormMode::kAddEps) return safety * norm + config.norm_eps;
  if (config.norm_mode == NormMode::kClampEps) return std::max(safety * norm, config.norm_eps);
  return safety * norm;
}

Matrix Standard(Matrix x, const Triples& triples, const Rounding& store) {
  for (const auto& [a, b, c] : triples) {
    const Matrix gram = store(x * x.transpose());
    const Matrix polynomial = store(b * gram + c * gram * gram);
    x = store(a * x + polynomial * x);
  }
  return x;
}

// [N7]. Q of no rows is one that has just been reset.
Matrix Gram(Matrix x, const Triples& triples, const std::vector<int>& restarts,
            const Rounding& store) {
  const Matrix identity = Matrix::Identity(x.rows(), x.rows());
  Matrix r = store(x * x.transpose());
  Matrix q;
  for (size_t i = 0; i < triples.size(); ++i) {
    if (std::count(restarts.begin(), restarts.end(), static_cast<int>(i)) > 0) {
      x = store(q * x);
      r = store(x * x.transpose());
      q.resize(0, 0);
    }
    const auto& [a, b, c] = triples[i];
    const Matrix z = store(b * r + c * r * r);
    q = store(q.size() == 0 ? Matrix(z + a * identity) : Matrix(a * q + z * q));
    const Matrix rz = store(a * r + z * r);
    r = store(a * rz + z * rz);
  }
  return store(q * x);
}

}  // namespace

int NaturalSteps(NsCoefficients set) {
  return std::max<int>(5, static_cast<int>(SetOf(set).triples.size()));
}

Triples TriplesOf(const NewtonSchulzConfig& config) {
  const CoefficientSet set = SetOf(config);
  const size_t count = set.triples.size();
  Triples triples;
  for (size_t i = 0; i < static_cast<size_t>(config.steps); ++i) {
    triples.push_back(i < count                        ? set.triples[i]
                      : set.repeat == NsRepeat::kCycle ? set.triples[i % count]
                                                       : set.triples[count - 1]);
  }
  return triples;
}

double RoundToBits(double x, int bits, int floor, int ceiling) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int ulp = std::max(exponent - bits, floor);
  // nearbyint rounds ties to even.
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -ulp)), ulp);
  if (std::fabs(rounded) < std::ldexp(1.0, ceiling)) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), x);
}

double RoundToFloat16(double x) { return RoundToBits(x, 11, -24, 16); }

Matrix Orthogonalize(const NewtonSchulzConfig& config, Stored stored, const Matrix& g) {
  if (g.size() == 0 || g.norm() == 0) return g;
  const bool tall = g.rows() > g.cols();
  const Rounding store(config.dtype, stored);
  const Matrix scaled = g / Divisor(config, g);
  const Matrix x = store(tall ? Matrix(scaled.transpose()) : scaled);
  const Triples triples = TriplesOf(config);
  const bool gram = config.form == NsForm::kGram && x.cols() > x.rows();
  const Matrix y =
      gram ? Gram(x, triples, config.gram_restarts, store) : Standard(x, triples, store);
  return tall ? Matrix(y.transpose()) : y;
}

}  // namespace kaon::conformance
