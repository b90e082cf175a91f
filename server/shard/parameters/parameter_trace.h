// History of a parameter's steps, for statistics only. No step depends on it and no digest covers
// it. A plain value in StoredParameter; used by the thread that drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_TRACE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_TRACE_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/tensor.pb.h"
#include "kernels/optimizer_rule.h"
#include "server/shard/parameters/parameter_sample.h"

namespace kaon::shard {

struct ParameterTrace {
  // Settings of the newest update.
  struct Update {
    double lr = 0;
    kernels::RuleConfig rule;
  };

  // Sums of the newest decided train step; absent before the first.
  std::optional<v1::ParameterSums> sums;
  std::optional<Update> update;
  // Dtype as first pushed; unspecified before a push, even while zeros replace the gradient ([T7]).
  v1::DType gradient_dtype = v1::DTYPE_UNSPECIFIED;
  // Train steps; 0 if there was none yet.
  uint64_t first_gradient_step = 0;
  uint64_t first_update_step = 0;
  // Up to this step, a client wants statistics, which read the version before the newest.
  uint64_t watched_until_step = 0;
  // Counted since the process started.
  uint64_t non_finite_steps = 0;
  uint64_t non_finite_elements = 0;
  SampleSeries samples;

  // Keeps only the samples up to `step`: the job went back to a state that shares these steps.
  void GoBackTo(uint64_t step) {
    SampleSeries kept = std::move(samples);
    kept.GoBackTo(step);
    *this = {};
    samples = std::move(kept);
  }
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_TRACE_H_
