#include "tests/kernels/reference/float64_newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace kaon::reference {
namespace {

struct Set {
  Triples triples;
  bool cycles = false;
  double safety_factor = 1;
};

Triples Paper() {
  return {{8.28721201814563, -23.595886519098837, 17.300387312530933},
          {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
          {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
          {3.3184196573706015, -2.488488024314874, 0.51004894012372},
          {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
          {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
          {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
          {1.875, -1.25, 0.375}};
}

// The first `count` with s / safety in place of s.
Triples DividedPaper(double safety, size_t count, size_t keep) {
  Triples triples = Paper();
  triples.resize(keep);
  for (size_t i = 0; i < count; ++i) {
    triples[i][0] *= std::pow(safety, -1);
    triples[i][1] *= std::pow(safety, -3);
    triples[i][2] *= std::pow(safety, -5);
  }
  return triples;
}

Triples DeepSeekV4() {
  Triples triples(8, {3.4445, -4.7750, 2.0315});
  triples.resize(10, {2, -1.5, 0.5});
  return triples;
}

const Set& SetOf(const std::string& name) {
  static const std::map<std::string, Set> sets = {
      {"jordan", {{{3.4445, -4.7750, 2.0315}}}},
      {"you",
       {{{4.0848, -6.8946, 2.9270},
         {3.9505, -6.3029, 2.6377},
         {3.7418, -5.5913, 2.3037},
         {2.8769, -3.1427, 1.2046},
         {2.8366, -3.0525, 1.2012}},
        true}},
      {"polar_express_exact", {DividedPaper(1.01, 7, 8)}},
      {"polar_express",
       {{{8.2051, -22.9019, 16.4607},
         {4.0664, -2.8612, 0.5184},
         {3.9096, -2.8234, 0.5250},
         {3.2856, -2.4153, 0.4853},
         {2.2779, -1.6198, 0.3985},
         {1.8726, -1.2307, 0.3585},
         {1.8564, -1.2132, 0.3568},
         {1.8750, -1.2500, 0.3750}}}},
      {"polar_express_5_s102",
       {{{8.156554524902461, -22.48329292557795, 15.878769915207462},
         {4.042929935166739, -2.808917465908714, 0.5000178451051316},
         {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
         {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
         {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
        false,
        1.02}},
      {"polar_express_5_s105", {DividedPaper(1.05, 5, 5)}},
      {"cans",
       {{{8.4703, -25.1081, 18.6293},
         {4.1828, -3.1087, 0.5806},
         {3.9619, -2.9541, 0.5630},
         {3.2866, -2.4647, 0.5074},
         {2.2737, -1.6447, 0.4162}},
        false,
        1.01}},
      {"aol",
       {{{4.0098, -7.0585, 2.4635},
         {3.4585, -5.5479, 2.5959},
         {2.7573, -3.2939, 1.4254},
         {2.7215, -3.0494, 1.3169}},
        true}},
      {"deepseek_v4", {DeepSeekV4()}},
      {"cubic5",
       {{{3.3656576, -3.3420992, 0},
         {2.5744352, -1.4957376, 0},
         {2.5368962, -1.4312570, 0},
         {2.4418906, -1.2764040, 0},
         {2.2230472, -0.9630650, 0}}}},
  };
  return sets.at(name);
}

Matrix Stored(const NewtonSchulzCase& c, const Matrix& x) {
  return c.store == nullptr ? x : Matrix(x.unaryExpr(c.store));
}

double Divisor(const NewtonSchulzCase& c, const Matrix& g) {
  const double norm = c.safety_factor * g.norm();
  return c.clamp_eps != 0 ? std::max(norm, c.clamp_eps) : norm + c.add_eps;
}

Matrix Standard(const NewtonSchulzCase& c, Matrix x) {
  for (const auto& [a, b, c2] : c.triples) {
    const Matrix gram = Stored(c, x * x.transpose());
    const Matrix polynomial = Stored(c, b * gram + c2 * gram * gram);
    x = Stored(c, a * x + polynomial * x);
  }
  return x;
}

// One stretch between restarts: the steps [begin, end).
Matrix GramStretch(const NewtonSchulzCase& c, const Matrix& x, int begin, int end) {
  const Matrix identity = Matrix::Identity(x.rows(), x.rows());
  Matrix r = Stored(c, x * x.transpose());
  Matrix q;
  for (int step = begin; step < end; ++step) {
    const auto& [a, b, c2] = c.triples[step];
    const Matrix z = Stored(c, b * r + c2 * r * r);
    q = Stored(c, step == begin ? Matrix(z + a * identity) : Matrix(a * q + z * q));
    if (step + 1 == end) break;
    const Matrix rz = Stored(c, a * r + z * r);
    r = Stored(c, a * rz + z * rz);
  }
  return Stored(c, q * x);
}

Matrix Gram(const NewtonSchulzCase& c, Matrix x) {
  std::vector<int> ends = c.gram_restarts;
  ends.push_back(static_cast<int>(c.triples.size()));
  int begin = 0;
  for (const int end : ends) {
    x = GramStretch(c, x, begin, end);
    begin = end;
  }
  return x;
}

}  // namespace

Triples TriplesOfSet(const std::string& name, int steps) {
  const Set& set = SetOf(name);
  const int n = static_cast<int>(set.triples.size());
  Triples triples;
  for (int step = 0; step < steps; ++step) {
    triples.push_back(set.triples[set.cycles ? step % n : std::min(step, n - 1)]);
  }
  return triples;
}

double SafetyFactorOfSet(const std::string& name) { return SetOf(name).safety_factor; }

int SizeOfSet(const std::string& name) { return static_cast<int>(SetOf(name).triples.size()); }

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

double RoundToBFloat16(double x) { return RoundToBits(x, 8, -133, 128); }

double RoundToFloat16(double x) { return RoundToBits(x, 11, -24, 16); }

Matrix Orthogonalized(const NewtonSchulzCase& c, const Matrix& g) {
  if (g.size() == 0 || g.norm() == 0) return Matrix::Zero(g.rows(), g.cols());
  const bool tall = g.rows() > g.cols();
  Matrix x = (tall ? Matrix(g.transpose()) : g) / Divisor(c, g);
  x = Stored(c, x);
  x = c.gram && x.rows() < x.cols() ? Gram(c, x) : Standard(c, x);
  return tall ? Matrix(x.transpose()) : x;
}

}  // namespace kaon::reference
