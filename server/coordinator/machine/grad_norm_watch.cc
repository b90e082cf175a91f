#include "server/coordinator/machine/grad_norm_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kaon::coordinator {

namespace {

// With fewer others, one of them alone could move their median.
constexpr size_t kLeastOthers = 2;

// Returns the median of `count` sorted values, at least one.
template <typename Sorted>
double MedianOf(size_t count, const Sorted& at) {
  return (at((count - 1) / 2) + at(count / 2)) / 2;
}

double MedianOf(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return MedianOf(sorted.size(), [&sorted](size_t i) { return sorted[i]; });
}

// Returns the median of `sorted` without one value that equals `own`.
double MedianOfOthers(const std::vector<double>& sorted, double own) {
  const size_t skipped =
      static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) - sorted.begin());
  return MedianOf(sorted.size() - 1, [&](size_t i) { return sorted[i < skipped ? i : i + 1]; });
}

// Returns the norms by rank; empty if a vote has gradients and no sums of the workers.
std::vector<std::pair<uint32_t, double>> NormsOf(const v1::StepPlan& plan,
                                                 const std::vector<v1::Prepared>& prepared) {
  const auto& members = plan.step().members();
  std::vector<std::pair<uint32_t, double>> norms;
  for (const v1::Member& member : members) norms.emplace_back(member.rank(), 0);
  for (const v1::Prepared& vote : prepared) {
    if (vote.sums_size() > 0 && vote.worker_sums_size() == 0) return {};
    for (const v1::WorkerSum& sum : vote.worker_sums()) {
      const auto found = std::lower_bound(
          norms.begin(), norms.end(), sum.rank(),
          [](const std::pair<uint32_t, double>& one, uint32_t rank) { return one.first < rank; });
      if (found != norms.end() && found->first == sum.rank()) found->second += sum.sum_squares();
    }
  }
  for (size_t i = 0; i < norms.size(); ++i) {
    const uint32_t micro_batches = members[static_cast<int>(i)].micro_batches();
    norms[i].second = std::sqrt(norms[i].second / micro_batches) / plan.step().loss_scale();
  }
  return norms;
}

}  // namespace

void GradNormWatch::Judge(const v1::StepPlan& plan, const std::vector<v1::Prepared>& prepared) {
  // After a new reading of the shards the same entry may be decided once more.
  if (plan.position() <= position_) return;
  position_ = plan.position();
  newest_.clear();
  if (plan.step().kind() != v1::STEP_KIND_TRAIN) return;
  const std::vector<std::pair<uint32_t, double>> norms = NormsOf(plan, prepared);
  std::vector<double> sorted;
  for (const auto& [rank, norm] : norms) {
    workers_[rank].norm = norm;
    if (std::isfinite(norm)) sorted.push_back(norm);
  }
  if (sorted.size() < kLeastOthers + 1) return;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [rank, norm] : norms) {
    const double median = MedianOfOthers(sorted, norm);
    if (!std::isfinite(norm) || !(median > 0)) continue;
    Worker& worker = workers_[rank];
    const double multiple = norm / median;
    if (multiple >= kOutlierFactor && worker.multiples.size() >= kLeastHistory) {
      const double usual = MedianOf(worker.multiples);
      if (multiple >= kOutlierFactor * usual) {
        newest_.push_back({plan.step().step(), rank, norm, median, usual});
        ++worker.outliers;
        ++total_;
      }
    }
    worker.multiples.push_back(multiple);
    if (worker.multiples.size() > kMostHistory) worker.multiples.pop_front();
  }
}

}  // namespace kaon::coordinator
