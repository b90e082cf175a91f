// The metrics of a shard, from what it tells an admin. Pure but for its sums; one thread.
#ifndef KAON_SERVER_SHARD_MONITOR_SHARD_METRICS_H_
#define KAON_SERVER_SHARD_MONITOR_SHARD_METRICS_H_

#include <cstdint>
#include <map>
#include <string>

#include "google/protobuf/repeated_field.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/monitor/metrics/metric_page.h"

namespace kaon::shard {

// Sums of the phases of all steps since the process started.
class PhaseSums {
 public:
  // Adds the phases of steps, oldest first. Ignores steps that were added before, and the newest
  // one, since its weights may still be read.
  void Add(const google::protobuf::RepeatedPtrField<v1::StepPhases>& steps);
  // Returns the position from which phases are to be read next.
  uint64_t next_position() const { return next_position_; }
  void Set(metrics::MetricPage& page) const;

 private:
  struct Seconds {
    double busy = 0;
    double hidden = 0;
  };
  uint64_t next_position_ = 1;
  metrics::SecondsHistogram steps_;
  std::map<std::string, Seconds> by_phase_;
};

// Sets the metrics of a shard that its description has.
void SetShard(const v1::DescribeShardResponse& shard, metrics::MetricPage& page);

// Space in bytes of the file system that has a directory; both 0 if it is unknown.
struct DiskSpace {
  uint64_t free = 0;
  uint64_t size = 0;
};

// Asks the file system, and may wait for it.
DiskSpace ReadDisk(const std::string& directory);
void SetDisk(const DiskSpace& disk, metrics::MetricPage& page);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_MONITOR_SHARD_METRICS_H_
