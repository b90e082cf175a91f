#include "tests/conformance/trial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <variant>

#include "tests/conformance/copied_buffers.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::conformance {
namespace {

using kernels::StateDType;
using kernels::UpdateScalars;

// t is counted from 1 ([M6]).
constexpr UpdateScalars kUpdates[] = {{0.5, 1.0, 1}, {0.25, 0.5, 2}, {0.375, 1.0, 3}};

size_t NumElements(const Trial& trial) {
  size_t n = 1;
  for (const uint64_t extent : trial.shape) n *= extent;
  return n;
}

bool IsConv(const Trial& trial) {
  const auto* muon = std::get_if<kernels::MuonConfig>(&trial.rule);
  return muon != nullptr && muon->layout.kind == kernels::MatrixLayoutKind::kConvFlatten;
}

// Every matrix of the parameter has the spectrum.
std::vector<float> WithSpectrum(const Trial& trial, double decades) {
  const size_t n = NumElements(trial);
  const size_t dimensions = trial.shape.size();
  const size_t rows =
      IsConv(trial) || dimensions < 2 ? trial.shape[0] : trial.shape[dimensions - 2];
  const size_t cols = IsConv(trial) || dimensions < 2 ? n / rows : trial.shape.back();
  std::vector<float> all;
  for (uint32_t i = 0; all.size() < n; ++i) {
    const std::vector<float> one = reference::MatrixWithSpectrum(
        static_cast<int>(rows), static_cast<int>(cols), decades, trial.seed + 1000 * i);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<float> Times(std::vector<float> x, float factor) {
  for (float& value : x) value *= factor;
  return x;
}

std::vector<float> Gradient(const Trial& trial, const UpdateScalars& scalars) {
  const uint32_t t = static_cast<uint32_t>(scalars.t);
  const auto gaussian = [&] {
    return reference::GaussianVector(NumElements(trial), 7919 * trial.seed + t);
  };
  switch (trial.input) {
    case Input::kGaussian:
      return gaussian();
    case Input::kFlat:
      return Times(WithSpectrum(trial, 0), 1.0f + 0.25f * t);
    case Input::kFourDecades:
      return Times(WithSpectrum(trial, 4), 1.0f + 0.25f * t);
    case Input::kTiny:
      return Times(gaussian(), 1e-30f);
    case Input::kHuge:
      return Times(gaussian(), 1e15f);
    case Input::kZeroFirst:
      return Times(gaussian(), t == 1 ? 0.0f : 1.0f);
    case Input::kOneSign:
      return std::vector<float>(NumElements(trial), 1.0f + 0.25f * t);
  }
  return {};
}

std::vector<float> InitialWeights(const Trial& trial) {
  return Times(reference::GaussianVector(NumElements(trial), 104729 * trial.seed), 0.5f);
}

struct BackendEnd {
  std::vector<float> param;
  std::vector<kernels::StateSlot> slots;
  // Floats only for their alignment.
  std::vector<std::vector<float>> state;
};

BackendEnd RunBackend(const Trial& trial, kernels::Backend& backend) {
  BackendEnd end{InitialWeights(trial), kernels::StateSlots(trial.rule, trial.shape), {}};
  std::vector<kernels::Region> regions;
  for (const kernels::StateSlot& slot : end.slots) end.state.emplace_back(slot.num_bytes / 4 + 1);
  for (size_t i = 0; i < end.slots.size(); ++i) {
    regions.push_back(kernels::Region(end.state[i]).Sub(0, end.slots[i].num_bytes));
  }
  for (const UpdateScalars& scalars : kUpdates) {
    const std::vector<float> grad = Gradient(trial, scalars);
    kernels::UpdateCopied(backend, trial.rule, scalars, trial.shape,
                          {grad, end.param, end.param, regions});
  }
  return end;
}

struct Float64End {
  std::vector<double> param;
  std::vector<std::vector<double>> state;
};

Float64End RunFloat64(const Trial& trial, Stored stored) {
  Float64End end{reference::Widened(InitialWeights(trial)), {}};
  Float64Rule rule(trial.rule, trial.shape, stored);
  for (const UpdateScalars& scalars : kUpdates) {
    rule.Step(scalars, reference::Widened(Gradient(trial, scalars)), end.param);
  }
  end.state = rule.state();
  return end;
}

// Returns NaN if x has one.
double RelativeError(const std::vector<double>& x, const std::vector<double>& expected) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (x[i] - expected[i]) * (x[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(size == 0 ? difference : difference / size);
}

double BFloat16At(const char* bytes) {
  uint16_t bits = 0;
  memcpy(&bits, bytes, sizeof(bits));
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Decodes a slot's bytes by docs/formats.md.
std::vector<double> Decoded(const kernels::StateSlot& slot, const std::vector<float>& state) {
  const char* bytes = reinterpret_cast<const char*>(state.data());
  std::vector<double> decoded(slot.num_elements);
  for (int64_t i = 0; i < slot.num_elements; ++i) {
    switch (slot.dtype) {
      case StateDType::kFloat32:
        decoded[i] = state[i];
        break;
      case StateDType::kBFloat16:
        decoded[i] = BFloat16At(bytes + 2 * i);
        break;
      case StateDType::kInt8: {
        // 2 bytes of scale, then the codes of 32 elements.
        const char* group = bytes + i / 32 * 34;
        decoded[i] = BFloat16At(group) * static_cast<int8_t>(group[2 + i % 32]);
        break;
      }
      case StateDType::kSqrtUInt8: {
        const char* group = bytes + i / 32 * 34;
        decoded[i] = std::pow(BFloat16At(group) * static_cast<uint8_t>(group[2 + i % 32]), 2);
        break;
      }
    }
  }
  return decoded;
}

}  // namespace

double WeightError(const Trial& trial, Stored stored, kernels::Backend& backend) {
  const std::vector<double> start = reference::Widened(InitialWeights(trial));
  std::vector<double> measured = reference::Widened(RunBackend(trial, backend).param);
  std::vector<double> expected = RunFloat64(trial, stored).param;
  for (size_t i = 0; i < start.size(); ++i) {
    measured[i] -= start[i];
    expected[i] -= start[i];
  }
  return RelativeError(measured, expected);
}

double StateError(const Trial& trial, kernels::Backend& backend) {
  const BackendEnd measured = RunBackend(trial, backend);
  const Float64End expected = RunFloat64(trial, Stored::kExact);
  if (measured.slots.size() != expected.state.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  for (size_t i = 0; i < measured.slots.size(); ++i) {
    const double error =
        RelativeError(Decoded(measured.slots[i], measured.state[i]), expected.state[i]);
    // max() would lose a NaN.
    if (!(error <= largest)) largest = error;
  }
  return largest;
}

}  // namespace kaon::conformance
