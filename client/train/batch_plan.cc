#include "client/train/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/train/random.h"

namespace kaon::train {
namespace {

constexpr double kWarmUp = 0.05;
constexpr double kDecay = 0.5;
constexpr double kFinalMultiplier = 0.02;
// Lower streams belong to the initial weights, one for each parameter.
constexpr uint64_t kShuffleStream = uint64_t{1} << 32;

}  // namespace

absl::StatusOr<BatchPlan> BatchPlan::Create(const BatchPlanOptions& options) {
  if (options.num_positions < 1) {
    return absl::InvalidArgumentError("batch plan: the text has no characters");
  }
  BatchPlan plan(options);
  const uint64_t total = std::accumulate(options.shares.begin(), options.shares.end(), uint64_t{0});
  uint64_t sum = 0;
  for (size_t rank = 0; rank < options.shares.size(); ++rank) {
    sum += options.shares[rank];
    plan.ends_.push_back(total == 0 ? 0 : static_cast<int>(options.batch_size * sum / total));
    if (plan.slice_size(static_cast<int>(rank)) < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank, " with share ", options.shares[rank], " of ", total,
          " gets no character of a batch of ", options.batch_size, ", must get at least 1"));
    }
  }
  return plan;
}

void BatchPlan::Shuffle(uint64_t epoch) {
  order_.resize(options_.num_positions);
  std::iota(order_.begin(), order_.end(), int64_t{0});
  for (uint64_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[RandomBits(options_.seed, kShuffleStream + epoch, i) % i]);
  }
  epoch_ = epoch;
}

std::vector<int64_t> BatchPlan::Slice(uint64_t step, int rank) {
  const uint64_t first = (step - 1) * options_.batch_size;
  std::vector<int64_t> positions;
  positions.reserve(slice_size(rank));
  for (int i = begin(rank); i < ends_[rank]; ++i) {
    const uint64_t epoch = (first + i) / options_.num_positions;
    if (order_.empty() || epoch != epoch_) Shuffle(epoch);
    positions.push_back(order_[(first + i) % options_.num_positions]);
  }
  return positions;
}

double LearningRateMultiplier(uint64_t step, uint64_t steps) {
  const double warm_up = std::min(1.0, step / (kWarmUp * steps));
  // Counts this step too, so that the last step still changes the weights.
  const double remaining = static_cast<double>(steps - std::min(step, steps) + 1) / steps;
  return warm_up * std::max(kFinalMultiplier, std::min(1.0, remaining / kDecay));
}

}  // namespace kaon::train
