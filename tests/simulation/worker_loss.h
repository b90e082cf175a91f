// The error of a job that has stopped because a worker was lost. Used by the nodes of a simulated
// cluster; any thread.
#ifndef KAON_TESTS_SIMULATION_WORKER_LOSS_H_
#define KAON_TESTS_SIMULATION_WORKER_LOSS_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace kaon::simulation {

inline bool IsLoss(const absl::Status& status) {
  return absl::StrContains(status.message(), "(worker_loss is fail)");
}

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_WORKER_LOSS_H_
