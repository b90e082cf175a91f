// Samples of the statistics of one parameter over the steps, in bounded memory. The series is a
// plain value of ParameterTrace. Used by the thread that drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_SAMPLE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"

namespace kaon::shard {

class ParameterPublisher;
struct StoredParameter;

// Values at one step; NaN stands for a value that there is not. Floats: nobody reads more digits.
struct ParameterSample {
  uint64_t step = 0;
  float weight_norm = 0;
  float grad_norm = 0;
  float update_norm = 0;
  float update_to_weight_ratio = 0;
  float orthogonality_error = 0;
  float stable_rank = 0;
};

class SampleSeries {
 public:
  // Bytes for the samples of all parameters of a shard, unless each has its least number of them.
  static constexpr uint64_t kBytes = uint64_t{8} << 20;
  // Steps between two samples, until a series is full for the first time.
  static constexpr uint64_t kFirstEvery = 10;

  // Returns how many samples each of so many parameters may have, 16 .. 4096.
  static size_t CapacityOf(size_t num_parameters);

  // Returns whether a sample of that step is due.
  bool IsDue(uint64_t step) const { return step >= next_step_; }
  // Adds a sample of a later step than all others. Drops every second one if `capacity`, at least
  // 2, is reached.
  void Add(const ParameterSample& sample, size_t capacity);
  // Drops the samples of later steps: the job went back to the result of `step`.
  void GoBackTo(uint64_t step);

  // Returns the step from which on the next sample is due.
  uint64_t next_step() const { return next_step_; }

  uint64_t every_steps() const { return every_; }
  const std::vector<ParameterSample>& samples() const { return samples_; }

 private:
  std::vector<ParameterSample> samples_;
  uint64_t every_ = kFirstEvery;
  uint64_t next_step_ = 1;
};

// Timelines whose steps led to the present state of a shard. A plain value of AppliedState.
class StepLineage {
 public:
  // The job leaves timeline `present` for a new one, which begins with the result of `step` of
  // `timeline`. Returns the newest step that the old and the new state have in common; 0 if none is
  // known.
  uint64_t GoBack(uint64_t present, uint64_t timeline, uint64_t step);

 private:
  // Last step of each earlier timeline that led to the present state.
  std::map<uint64_t, uint64_t> ends_;
};

// Largest parameter, in elements, that is sampled as a whole.
inline constexpr uint64_t kWholeSample = uint64_t{1} << 22;

// Returns the statistics of the result of `step`, from the arguments of StatsOf. Reads the weights
// a few times, or a part of them if the parameter is larger than kWholeSample.
ParameterSample SampleOf(const StoredParameter& parameter, kernels::Backend& backend,
                         kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                         kernels::ConstRegion previous, uint64_t step);

// Returns the parameter whose sample of `step` is most overdue; null if none is due. A sample needs
// the version before the newest, which speculation overwrites. If only that is missing, one
// parameter is left out of speculation for the next steps. Frozen parameters, and those on a disk,
// are never due.
StoredParameter* NextToSample(std::vector<StoredParameter>& parameters,
                              const ParameterPublisher& publisher, uint64_t step);

// Least ratio of update to weight whose orthogonality counts. The weights' rounding to fp32 hides
// that of smaller updates, such as those of a schedule's end.
inline constexpr float kLeastRatioToJudge = 1e-5f;

// Returns the largest orthogonality error in the newest sample of each parameter. Absent if none
// counts.
std::optional<double> LargestOrthogonalityError(const std::vector<StoredParameter>& parameters);

v1::ParameterHistory HistoryOf(uint32_t parameter_id, const SampleSeries& series);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_SAMPLE_H_
