#include "tests/conformance/gradient_cases.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/conformance/gradient_sum.h"
#include "tests/kernels/reference/float64_newton_schulz.h"
#include "tests/kernels/reference/float64_optimizer.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::conformance {
namespace {

using kernels::Backend;
using kernels::DType;

constexpr size_t kElements = 5000;

double Rounded(DType dtype, double x) {
  if (dtype == DType::kBFloat16) return reference::RoundToBFloat16(x);
  return dtype == DType::kFloat16 ? reference::RoundToFloat16(x) : x;
}

// Workers' gradients as they arrive, their mean by Fold and FinishMean, and the same in float64
// ([T1], [T2]).
double MeanError(DType dtype, const std::vector<double>& weights, double loss_scale,
                 Backend& backend) {
  kernels::GradientSum sum(backend, std::vector<float>(kElements));
  std::vector<std::vector<double>> gradients;
  double total = 0;
  for (size_t worker = 0; worker < weights.size(); ++worker) {
    std::vector<float> grad = reference::GaussianVector(kElements, 300 + worker);
    for (float& g : grad) g = static_cast<float>(Rounded(dtype, g * loss_scale));
    gradients.push_back(reference::Widened(grad));
    std::vector<std::byte> bytes(kElements * kernels::SizeOf(dtype));
    kernels::FromFloat(dtype, grad, bytes.data());
    const auto weight = static_cast<float>(weights[worker]);
    const auto contribution = static_cast<uint32_t>(worker);
    sum.Fold(dtype, bytes, weight, contribution, worker == 0);
    if (sum.accumulation().FactsOf(contribution).non_finite) {
      return std::numeric_limits<double>::infinity();
    }
    total += weights[worker];
  }
  sum.accumulation().FinishMean(
      {.total_weight = static_cast<float>(total), .loss_scale = static_cast<float>(loss_scale)});
  return reference::RelativeError(sum.Floats(),
                                  reference::WeightedMean(gradients, weights, loss_scale));
}

// Returns the relative error of the norm; its counts must be exact ([C1]).
double NormError(double scale, Backend& backend) {
  std::vector<float> grad = reference::GaussianVector(kElements, 310);
  double largest = 0;
  for (size_t i = 0; i < grad.size(); ++i) {
    grad[i] = i % 7 == 3 ? 0.0f : static_cast<float>(grad[i] * scale);
    largest = std::max<double>(largest, std::fabs(grad[i]));
  }
  const kernels::GradNorm norm =
      kernels::GradientSum(backend, grad).accumulation().FinishMean({}).norm;
  const auto zeros = static_cast<int64_t>(std::count(grad.begin(), grad.end(), 0.0f));
  if (norm.num_elements != static_cast<int64_t>(kElements) || norm.num_zeros != zeros ||
      norm.num_non_finite != 0 || norm.absolute_max != largest) {
    return std::numeric_limits<double>::infinity();
  }
  const double expected = reference::Norm(reference::Widened(grad));
  return std::fabs(std::sqrt(norm.sum_squares) - expected) / expected;
}

// Returns the relative error of the norm that folding computes.
double FoldedNormError(DType dtype, double size, Backend& backend) {
  std::vector<float> grad = reference::GaussianVector(kElements, 311);
  for (float& g : grad) g = static_cast<float>(Rounded(dtype, g * size));
  std::vector<std::byte> bytes(kElements * kernels::SizeOf(dtype));
  kernels::FromFloat(dtype, grad, bytes.data());
  kernels::GradientSum sum(backend, grad);
  sum.Fold(dtype, bytes, 3.0f, 0, true);
  const double sum_squares = sum.accumulation().FactsOf(0).sum_squares;
  const double expected = reference::Norm(reference::Widened(grad));
  return std::fabs(std::sqrt(sum_squares) - expected) / expected;
}

// Returns 1 if folding misses elements that are not finite, plus the error of their count ([T3]).
double NonFiniteError(DType dtype, float value, Backend& backend) {
  std::vector<float> grad(kElements, 1.0f);
  grad[1234] = grad[4321] = value;
  std::vector<std::byte> bytes(kElements * kernels::SizeOf(dtype));
  kernels::FromFloat(dtype, grad, bytes.data());
  kernels::GradientSum sum(backend, grad);
  sum.Fold(dtype, bytes, 1.0f, 0, true);
  const bool found = sum.accumulation().FactsOf(0).non_finite;
  const int64_t count = sum.accumulation().FinishMean({}).norm.num_non_finite;
  return static_cast<double>((found ? 0 : 1) + std::abs(count - 2));
}

}  // namespace

std::vector<NumericsCase> GradientCases() {
  std::vector<NumericsCase> cases;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::vector<double>& weights :
         {std::vector<double>{1}, {1, 1, 1, 1}, {3, 1, 1024, 77}}) {
      for (const double loss_scale : {1.0, 1024.0}) {
        cases.push_back({"gradient",
                         absl::StrCat(kernels::NameOf(dtype), " ", weights.size(),
                                      weights.back() == 1 ? " equal" : " unequal",
                                      " workers, loss scale ", loss_scale),
                         "[T1] [T2]", "mean", 1e-6, [=](Backend& backend) {
                           return MeanError(dtype, weights, loss_scale, backend);
                         }});
      }
    }
    for (const float value :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      cases.push_back({"gradient",
                       absl::StrCat(kernels::NameOf(dtype), std::isnan(value) ? " NaN" : " inf"),
                       "[T3]", "non-finite elements", 0,
                       [=](Backend& backend) { return NonFiniteError(dtype, value, backend); }});
    }
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const double size : {1e-25, 1.0, 1e25}) {
      // fp16 has none so large, and none so small.
      if (dtype == DType::kFloat16 && size != 1.0) continue;
      cases.push_back({"gradient", absl::StrCat(kernels::NameOf(dtype), " entries of size ", size),
                       "P11", "norm of one worker's", 1e-5,
                       [=](Backend& backend) { return FoldedNormError(dtype, size, backend); }});
    }
  }
  // Edge case 43, and sums of squares that fp32 would lose.
  for (const double scale : {1.0, 1e20, 1e-25}) {
    cases.push_back({"gradient", absl::StrCat("entries of size ", scale), "[C1]", "norm and counts",
                     1e-12, [=](Backend& backend) { return NormError(scale, backend); }});
  }
  return cases;
}

}  // namespace kaon::conformance
