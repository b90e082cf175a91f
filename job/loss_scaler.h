// Computes the scale that workers multiply the loss by, from the result of each step (numerics.md
// [T2b]). Pure functions; any thread. Decide() uses them.
#ifndef KAON_JOB_LOSS_SCALER_H_
#define KAON_JOB_LOSS_SCALER_H_

#include <optional>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct LossScale {
  double scale = 1;
  // Absent if the scaler is not dynamic.
  std::optional<v1::LossScalerState> state;
};

// Returns the scale of the first step. `scaler` has every option written out. If the job has no
// scaler, the message is empty and the scale is 1.
LossScale InitialLossScale(const v1::LossScaler& scaler);

// Returns the scale after a train step that ran with `current`. `overflow` says that a gradient was
// not finite, or too large to apply. A step that the norm threshold skips is no overflow: its
// gradients were sound.
// A constant scale never changes. An overflow never raises a scale. Growth never takes a scale
// above the largest float, because shards divide by a float.
LossScale NextLossScale(const v1::LossScaler& scaler, const LossScale& current, bool overflow);

}  // namespace kaon::job

#endif  // KAON_JOB_LOSS_SCALER_H_
