// Looks at a coordinator's state machine after each event, and at the messages it sends, and
// reports changes.
//
// - To the health service: the job is stopped, or its state is damaged.
// - To the event counts: takeovers, rounds, control entries, checkpoints, lost workers, and workers
//   whose gradient norms are far from the others'.
// - To the log: the entries that this coordinator decided, steps every ten minutes.
//
// Owned by CoordinatorServer; called by the loop's thread unless a method says otherwise.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/decision_times.h"
#include "server/coordinator/machine/step_machine.h"
#include "server/coordinator/monitor/job_meter.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"
#include "server/monitor/step_log.h"

namespace kaon::coordinator {

// Cause of ill health: no checkpoint can be taken of the state.
inline constexpr char kCheckpointCause[] = "checkpoint";

class MachineWatch {
 public:
  // `health` is of the service that workers call. It and `counts` must outlive the watch.
  MachineWatch(monitor::ServiceHealth& health, monitor::EventCounts& counts)
      : health_(health), counts_(counts) {}

  void Look(const StepMachine& machine);
  // Counts a message that was sent to any shard.
  void OnSent(const v1::CoordinatorToShard& message);
  // Call it when a checkpoint was created or abandoned. Any thread.
  void OnCheckpoint(const std::string& id, const absl::Status& status);
  // Counts the decisions. Any thread.
  const DecisionTimes& decision_times() const { return decision_times_; }
  const JobMeter& meter() const { return meter_; }

 private:
  void LookAtHolder(const StepMachine& machine);
  void LookAtWorkers(const StepMachine& machine);
  void LookAtGradNorms(const GradNormWatch& norms);

  monitor::ServiceHealth& health_;
  monitor::EventCounts& counts_;
  // State at the last look.
  bool stopped_ = false;
  bool holds_ = false;
  std::map<uint32_t, std::string> lost_;
  uint64_t outliers_ = 0;
  // The newest round after a first one, and the newest decision, that were counted.
  uint64_t reopened_position_ = 0;
  v1::Ballot reopened_ballot_;
  uint64_t reopened_round_ = 0;
  uint64_t decided_position_ = 0;
  DecisionTimes decision_times_;
  JobMeter meter_;
  monitor::StepLog step_log_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
