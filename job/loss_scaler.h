// The scale the workers multiply the loss by, as a pure function of what came of each step
// (numerics.md [T2b]). Any thread; used by decide().
#ifndef KAON_JOB_LOSS_SCALER_H_
#define KAON_JOB_LOSS_SCALER_H_

#include <optional>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

struct LossScale {
  double scale = 1;
  // Absent when the scaler is not dynamic.
  std::optional<v1::LossScalerState> state;
};

// Before the first step. `scaler` has every option written out; one of a job without any is absent
// or empty and means 1.
LossScale InitialLossScale(const v1::LossScaler& scaler);

// After a train step that ran with `current`. `overflow`: some gradient was not finite, or too
// large to be stepped with. A step that the norm threshold skips is none: its gradients were sound.
// A constant scale never moves, and no overflow raises one. It is never doubled beyond what a float
// holds, for shards divide by a float.
LossScale NextLossScale(const v1::LossScaler& scaler, const LossScale& current, bool overflow);

}  // namespace kaon::job

#endif  // KAON_JOB_LOSS_SCALER_H_
