// Whose gradients are far from the other workers' (reliability.md P11): a tripwire for a worker
// whose hardware or input is silently broken. It points out; no decision reads it. Pure; owned by
// StepMachine, called by its thread.
//
// A worker is an outlier of a step if its norm, as a multiple of the median of the others', is at
// least kOutlierFactor times
//   - 1: as far from the others in this very step, which have the same weights; and
//   - the median of its own multiples in the last steps: workers may push parts of the gradient, or
//     have other input, so that one is always larger.
// Why 10: the norms of like workers differ by less than 3 however small their batches, while what
// it is for, a flipped bit of an exponent or a lost division, moves a norm by powers of 2^16, or
// by the number of workers or tokens. Medians, so that neither one outlier among three workers, nor
// one in the history, moves the measure. Not judged: a step of fewer than three workers, where the
// others have no median; a worker of whom fewer than kLeastHistory steps are known; a norm that is
// not finite, which the decision itself names.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_GRAD_NORM_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_GRAD_NORM_WATCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "kaon/v1/agreement.pb.h"

namespace kaon::coordinator {

struct GradNormOutlier {
  uint64_t step = 0;
  uint32_t rank = 0;
  double norm = 0;
  // Of the others in this step, and of its own multiples of that before.
  double median_of_others = 0;
  double usual_multiple = 0;
};

class GradNormWatch {
 public:
  static constexpr double kOutlierFactor = 10;
  static constexpr size_t kLeastHistory = 8;
  // What lasts for half as many steps is usual from then on.
  static constexpr size_t kMostHistory = 32;

  // What one rank has had.
  struct Worker {
    // Of the newest step it took part in, over all its shards, per micro-batch (root mean square)
    // and without the loss scale, but not weighted.
    std::optional<double> norm;
    uint64_t outliers = 0;
    // Newest last.
    std::deque<double> multiples;
  };

  // What the shards say of an entry that is decided now; again, it changes nothing. A step of which
  // some shard does not say it, because it was restarted since, is not judged.
  void Judge(const v1::StepPlan& plan, const std::vector<v1::Prepared>& prepared);

  // By rank.
  const std::map<uint32_t, Worker>& workers() const { return workers_; }
  // Of the newest step judged, ascending by rank; and how many there were in all.
  const std::vector<GradNormOutlier>& newest() const { return newest_; }
  uint64_t total() const { return total_; }

 private:
  std::map<uint32_t, Worker> workers_;
  std::vector<GradNormOutlier> newest_;
  uint64_t total_ = 0;
  // Of the newest entry that was decided.
  uint64_t position_ = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_GRAD_NORM_WATCH_H_
