// The numbers of past steps that the status page draws, from the job's log. Bounded: beyond
// kMaxPoints every second one of the older half is dropped. Thread-safe.
#ifndef KAON_SERVER_COORDINATOR_PAGE_STEP_CURVES_H_
#define KAON_SERVER_COORDINATOR_PAGE_STEP_CURVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/admin.pb.h"
#include "kernels/mutex.h"

namespace kaon::coordinator {

// Numbers of one group; absent if they were not computed.
struct GroupPoint {
  std::optional<double> norm;
  std::optional<double> clip_factor;
  std::optional<double> rate;
};

struct StepPoint {
  uint64_t position = 0;
  uint64_t step = 0;
  bool skipped = false;
  // Reason of a skip, at most 200 bytes.
  std::string reason;
  std::optional<double> loss;
  std::optional<double> grad_norm;
  double loss_scale = 0;
  // Time of the decision in milliseconds since 1970 UTC; 0 if this coordinator did not make it.
  int64_t unix_millis = 0;
  // Ordered as Curves::groups.
  std::vector<GroupPoint> groups;
};

// Update divided by weight of one parameter, as its shard measured it.
struct RatioPoint {
  uint64_t step = 0;
  double ratio = 0;
};

struct RatioCurve {
  std::string group;
  // The parameter that stands for the group.
  std::string parameter;
  std::vector<RatioPoint> points;
};

struct Curves {
  // Names of the groups; at most StepCurves::kMaxGroups.
  std::vector<std::string> groups;
  // Train steps, oldest first.
  std::vector<StepPoint> points;
  std::vector<RatioCurve> ratios;
};

class StepCurves {
 public:
  static constexpr size_t kMaxPoints = 20000;
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxRatios = 2000;
  static constexpr size_t kMaxCopies = 4;

  // Adds the records after the newest one that was added. A step that the log has again, because
  // the job was restored or rolled back, replaces the points from it on.
  void Add(const v1::StepHistoryResponse& history);
  void AddRatio(const std::string& group, const std::string& parameter, uint64_t step,
                double ratio);
  // Forgets everything: the job is another one.
  void Clear();

  // Returns the position from which the log is to be read next.
  uint64_t next_position() const;
  // Returns the points of the steps `from` to `to`. Readers of the same range share one copy until
  // something is added: many pages may draw all of a long log.
  std::shared_ptr<const Curves> Read(uint64_t from, uint64_t to) const;
  // Returns the newest step; 0 before the first.
  uint64_t newest_step() const;

 private:
  void AddPointLocked(const v1::StepRecord& record, int64_t unix_millis)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Copy {
    uint64_t from = 0;
    uint64_t to = 0;
    std::shared_ptr<const Curves> curves;
  };

  mutable Mutex mu_;
  Curves curves_ ABSL_GUARDED_BY(mu_);
  uint64_t next_position_ ABSL_GUARDED_BY(mu_) = 1;
  // Newest copies of `curves_` as it is, oldest first; at most kMaxCopies.
  mutable std::vector<Copy> copies_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_STEP_CURVES_H_
