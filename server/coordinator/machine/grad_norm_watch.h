// Watches for workers whose gradients are far from the other workers' (reliability.md P11). It is a
// tripwire for a worker whose hardware or input is silently broken. No decision reads it. Pure;
// owned by StepMachine, one thread.
//
// Its multiple is its norm divided by the median of the others' norms. A worker is an outlier of a
// step if its multiple is at least kOutlierFactor times both of these:
//   - 1: the worker is far from the others, which have the same weights in this step;
//   - the median of its own multiples in the last steps. A worker that pushes parts of the
//   gradient,
//     or has other input, may always have a larger norm.
// Why 10: norms of like workers differ by less than 3, however small their batches. A flipped bit
// of an exponent or a lost division moves a norm by powers of 2^16, or by the number of workers or
// tokens. Medians keep one outlier among three workers, or in the history, from moving the measure.
// The watch does not judge:
//   - a step of fewer than three workers, where the others have no median;
//   - a worker of whom fewer than kLeastHistory steps are known;
//   - a norm that is not finite, which the decision itself names.
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
  // Median of the others' norms in this step, and of its own multiples in earlier steps.
  double median_of_others = 0;
  double usual_multiple = 0;
};

class GradNormWatch {
 public:
  static constexpr double kOutlierFactor = 10;
  static constexpr size_t kLeastHistory = 8;
  // A change that lasts for half as many steps is usual from then on.
  static constexpr size_t kMostHistory = 32;

  // The norms of one rank.
  struct Worker {
    // Norm in the newest step that the rank took part in, over all shards. It is per micro-batch
    // (root mean square), without the loss scale and not weighted.
    std::optional<double> norm;
    uint64_t outliers = 0;
    // Multiples of the others' median by step, newest last.
    std::deque<double> multiples;
  };

  // Judges the votes of an entry that is decided now. The same entry again changes nothing. A step
  // is not judged if a vote lacks the norms, because its shard restarted since.
  void Judge(const v1::StepPlan& plan, const std::vector<v1::Prepared>& prepared);

  // Norms by rank.
  const std::map<uint32_t, Worker>& workers() const { return workers_; }
  // Outliers of the newest step that was judged, ascending by rank, and their number in all steps.
  const std::vector<GradNormOutlier>& newest() const { return newest_; }
  uint64_t total() const { return total_; }

 private:
  std::map<uint32_t, Worker> workers_;
  std::vector<GradNormOutlier> newest_;
  uint64_t total_ = 0;
  // Position of the newest entry that was decided.
  uint64_t position_ = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_GRAD_NORM_WATCH_H_
