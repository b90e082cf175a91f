#include "server/shard/parameters/parameter_sample.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/reduce/stable_rank.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_stats.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/tier/host_view.h"

namespace kaon::shard {

namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kLeastCapacity = 16;
constexpr size_t kMostCapacity = 4096;
// A large parameter is sampled in so many pieces of so many elements.
constexpr uint64_t kPieces = 64;
constexpr uint64_t kPieceElements = kWholeSample / kPieces;

// Steps without speculation on a parameter whose sample is due.
constexpr uint64_t kWatchedForSample = 2;

float FloatOr(const std::optional<double>& value) {
  return value.has_value() ? static_cast<float>(*value) : kNone;
}

// Returns the stable rank of the first dimension by all others.
std::optional<double> StableRankOf(const StoredParameter& parameter, kernels::Backend& backend,
                                   kernels::ConstRegion weights) {
  if (parameter.shape.size() < 2 || parameter.num_elements == 0) return std::nullopt;
  const auto rows = static_cast<int64_t>(parameter.shape[0]);
  const int64_t cols = static_cast<int64_t>(parameter.num_elements) / rows;
  if (rows < 2 || cols < 2) return std::nullopt;
  return kernels::StableRank(tier::HostView(backend, weights).floats(), rows, cols);
}

// Estimates the norms from pieces at equal distances.
void AddEstimates(const StoredParameter& parameter, kernels::Backend& backend,
                  kernels::ConstRegion newest, kernels::ConstRegion previous,
                  ParameterSample& sample) {
  const uint64_t distance = (parameter.num_elements - kPieceElements) / (kPieces - 1);
  double squares = 0;
  double update_squares = 0;
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    const uint64_t first = piece * distance;
    const tier::HostView after(backend, newest.SubFloats(first, kPieceElements));
    for (const float value : after.floats()) squares += static_cast<double>(value) * value;
    if (previous.empty()) continue;
    const tier::HostView before(backend, previous.SubFloats(first, kPieceElements));
    for (size_t i = 0; i < kPieceElements; ++i) {
      const double change = static_cast<double>(after.floats()[i]) - before.floats()[i];
      update_squares += change * change;
    }
  }
  const double part =
      static_cast<double>(kWholeSample) / static_cast<double>(parameter.num_elements);
  sample.weight_norm = static_cast<float>(std::sqrt(squares / part));
  if (previous.empty()) return;
  sample.update_norm = static_cast<float>(std::sqrt(update_squares / part));
  if (squares > 0) sample.update_to_weight_ratio = sample.update_norm / sample.weight_norm;
}

}  // namespace

size_t SampleSeries::CapacityOf(size_t num_parameters) {
  const size_t share = kBytes / sizeof(ParameterSample) / std::max<size_t>(1, num_parameters);
  return std::clamp(share, kLeastCapacity, kMostCapacity);
}

void SampleSeries::Add(const ParameterSample& sample, size_t capacity) {
  CHECK_GE(capacity, 2u);
  CHECK(samples_.empty() || sample.step > samples_.back().step);
  // Vectors that grow by themselves would take up to twice as much.
  samples_.reserve(capacity);
  if (samples_.size() >= capacity) {
    size_t kept = 0;
    for (size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = samples_[i];
    samples_.resize(kept);
    every_ *= 2;
  }
  samples_.push_back(sample);
  next_step_ = sample.step + every_;
}

void SampleSeries::GoBackTo(uint64_t step) {
  while (!samples_.empty() && samples_.back().step > step) samples_.pop_back();
  next_step_ = samples_.empty() ? 1 : samples_.back().step + every_;
}

uint64_t StepLineage::GoBack(uint64_t present, uint64_t timeline, uint64_t step) {
  const auto end = ends_.find(timeline);
  uint64_t shared = 0;
  if (timeline == present) {
    shared = step;
  } else if (end != ends_.end()) {
    shared = std::min(step, end->second);
  } else {
    ends_.clear();
  }
  // Timelines are numbered in the order in which they begin.
  ends_.erase(ends_.lower_bound(timeline), ends_.end());
  ends_[timeline] = step;
  return shared;
}

ParameterSample SampleOf(const StoredParameter& parameter, kernels::Backend& backend,
                         kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                         kernels::ConstRegion previous, uint64_t step) {
  ParameterSample sample = {step, kNone, kNone, kNone, kNone, kNone, kNone};
  if (parameter.num_elements > kWholeSample) {
    sample.grad_norm = FloatOr(GradNormOf(parameter.trace));
    const bool has_update = parameter.trace.update.has_value();
    AddEstimates(parameter, backend, newest, has_update ? previous : kernels::ConstRegion(),
                 sample);
    return sample;
  }
  const v1::ParameterStats stats = StatsOf(parameter, backend, newest, states, previous);
  const auto value = [](bool has, double known) { return has ? static_cast<float>(known) : kNone; };
  sample.weight_norm = static_cast<float>(stats.weight_norm());
  sample.grad_norm = value(stats.has_grad_norm(), stats.grad_norm());
  sample.update_norm = value(stats.has_update_norm(), stats.update_norm());
  sample.update_to_weight_ratio =
      value(stats.has_update_to_weight_ratio(), stats.update_to_weight_ratio());
  sample.orthogonality_error = value(stats.has_orthogonality_error(), stats.orthogonality_error());
  sample.stable_rank = FloatOr(StableRankOf(parameter, backend, newest));
  return sample;
}

StoredParameter* NextToSample(std::vector<StoredParameter>& parameters,
                              const ParameterPublisher& publisher, uint64_t step) {
  StoredParameter* next = nullptr;
  StoredParameter* lacking = nullptr;
  const auto is_later = [](const StoredParameter& parameter, const StoredParameter* other) {
    return other != nullptr &&
           parameter.trace.samples.next_step() >= other->trace.samples.next_step();
  };
  for (StoredParameter& parameter : parameters) {
    if (!parameter.rule.has_value() || !parameter.trace.samples.IsDue(step)) continue;
    if (is_later(parameter, next) || !parameter.is_in_memory()) continue;
    if (publisher.HasPrevious(parameter.id)) {
      next = &parameter;
    } else if (parameter.trace.update.has_value() && !is_later(parameter, lacking)) {
      lacking = &parameter;
    }
  }
  if (next == nullptr && lacking != nullptr) {
    uint64_t& watched = lacking->trace.watched_until_step;
    watched = std::max(watched, step + kWatchedForSample);
  }
  return next;
}

std::optional<double> LargestOrthogonalityError(const std::vector<StoredParameter>& parameters) {
  std::optional<double> largest;
  for (const StoredParameter& parameter : parameters) {
    const std::vector<ParameterSample>& samples = parameter.trace.samples.samples();
    if (samples.empty() || std::isnan(samples.back().orthogonality_error)) continue;
    // Also false for a ratio that there is not.
    if (!(samples.back().update_to_weight_ratio >= kLeastRatioToJudge)) continue;
    largest = std::max<double>(largest.value_or(0), samples.back().orthogonality_error);
  }
  return largest;
}

v1::ParameterHistory HistoryOf(uint32_t parameter_id, const SampleSeries& series) {
  v1::ParameterHistory history;
  history.set_parameter_id(parameter_id);
  history.set_every_steps(series.every_steps());
  for (const ParameterSample& sample : series.samples()) {
    v1::ParameterSample& row = *history.add_samples();
    row.set_step(sample.step);
    row.set_weight_norm(sample.weight_norm);
    const auto set = [&row](void (v1::ParameterSample::*setter)(double), float value) {
      if (!std::isnan(value)) (row.*setter)(value);
    };
    set(&v1::ParameterSample::set_grad_norm, sample.grad_norm);
    set(&v1::ParameterSample::set_update_norm, sample.update_norm);
    set(&v1::ParameterSample::set_update_to_weight_ratio, sample.update_to_weight_ratio);
    set(&v1::ParameterSample::set_orthogonality_error, sample.orthogonality_error);
    set(&v1::ParameterSample::set_stable_rank, sample.stable_rank);
  }
  return history;
}

}  // namespace kaon::shard
