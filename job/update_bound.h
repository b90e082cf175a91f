// How large an update may make a weight, from what a vote says of the parameter ([T10]). Pure
// function; any thread.
#ifndef KAON_JOB_UPDATE_BOUND_H_
#define KAON_JOB_UPDATE_BOUND_H_

#include <cstdint>

#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct UpdateFacts {
  // Of this parameter, its multiplier included.
  double lr = 0;
  double weight_decay_multiplier = 1;
  uint64_t num_elements = 0;
  double weight_absolute_max = 0;
  // After clipping.
  double gradient_absolute_max = 0;
};

// Returns an estimate of the largest magnitude of a weight after one update by `group`, whose
// options are written out. A step is taken to be 1 times the learning rate for AdamW and Lion, the
// gradient for SGD, at most scale_extra sqrt(elements) for Muon ([S1]). It knows no momentum, which
// may make a step larger.
double MostWeightAfter(const v1::ParameterGroup& group, const UpdateFacts& facts);

}  // namespace kaon::job

#endif  // KAON_JOB_UPDATE_BOUND_H_
