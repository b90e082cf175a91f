// Looks at a coordinator's state machine after each event, and at what it sends, and tells of what
// has changed: whether its job is stopped or its state is damaged, which the health service
// answers; takeovers, rounds, control entries, checkpoints, lost workers and those whose gradients
// are far from the others', which are counted. Owned by CoordinatorServer; called by the loop's
// thread unless it says so.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/step_machine.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"

namespace kaon::coordinator {

// Cause of ill health: the state is not one that a checkpoint can be taken of.
inline constexpr char kCheckpointCause[] = "checkpoint";

class MachineWatch {
 public:
  // `health`, of the service that workers call, and `counts` outlive the watch.
  MachineWatch(monitor::ServiceHealth& health, monitor::EventCounts& counts)
      : health_(health), counts_(counts) {}

  void Look(const StepMachine& machine);
  // To whichever shard.
  void OnSent(const v1::CoordinatorToShard& message);
  // A checkpoint was created, or given up. Any thread.
  void OnCheckpoint(const std::string& id, const absl::Status& status);

 private:
  void LookAtHolder(const StepMachine& machine);
  void LookAtWorkers(const StepMachine& machine);
  void LookAtGradNorms(const GradNormWatch& norms);

  monitor::ServiceHealth& health_;
  monitor::EventCounts& counts_;
  // As of the last look.
  bool stopped_ = false;
  bool holds_ = false;
  std::set<uint32_t> lost_;
  uint64_t outliers_ = 0;
  // Newest that was counted: a round after the first, and a decision.
  uint64_t reopened_position_ = 0;
  v1::Ballot reopened_ballot_;
  uint64_t reopened_round_ = 0;
  uint64_t decided_position_ = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
