// Estimates how large an update may make a weight, from a shard's vote about the parameter ([T10]).
// Pure function; any thread.
#ifndef KAON_JOB_UPDATE_BOUND_H_
#define KAON_JOB_UPDATE_BOUND_H_

#include <cstdint>

#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct UpdateFacts {
  // Learning rate of the parameter, with its multiplier.
  double lr = 0;
  double weight_decay_multiplier = 1;
  uint64_t num_elements = 0;
  double weight_absolute_max = 0;
  // Largest element after clipping.
  double gradient_absolute_max = 0;
};

// Returns an estimate of the largest magnitude of a weight after one update by `group`, whose
// options are written out. A step is 1 times the learning rate for AdamW and Lion. For SGD it is
// the gradient times the learning rate. For Muon it is at most scale_extra sqrt(elements) times the
// learning rate ([S1]). The estimate ignores momentum, which may make a step larger.
double MostWeightAfter(const v1::ParameterGroup& group, const UpdateFacts& facts);

}  // namespace kaon::job

#endif  // KAON_JOB_UPDATE_BOUND_H_
