// The job as its log has it, up to the newest entry that this coordinator has read or decided.
// Plain values; StepMachine owns them, its parts read them, all on one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_JOB_STATE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_JOB_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/schedule.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/decided_record.h"

namespace kaon::coordinator {

struct JobState {
  // Replaces all values by those of a shard that has applied the newest position.
  void Read(const v1::ShardState& newest);
  // Appends the record of the next position.
  void Append(v1::StepRecord decided);

  // Plan of the newest entry; an empty plan before the first entry.
  const v1::StepPlan& NewestPlan() const {
    return record ? record->plan() : v1::StepPlan::default_instance();
  }
  // Name of the job that the newest entry deleted; empty if that is another entry.
  std::string DeletedJob() const;
  // Step that workers begin next; 0 while the weights are not loaded.
  uint64_t NextStep() const { return weights_loaded ? applied_step + 1 : 0; }
  // Number of workers; 0 without a registration.
  uint32_t WorldSize() const { return registration ? registration->definition().world_size() : 0; }
  // Returns the plan of the next step, but for what every plan has. Requires a registration and,
  // for a train step, the record before it.
  v1::StepPlan PlanStep(const std::vector<v1::Member>& members,
                        const job::RateMultipliers& multipliers) const;
  // Returns what workers are told of the job, but for shard addresses and the reason it stopped.
  // Requires a registration.
  v1::JobDescription Describe() const;

  uint64_t position = 0;
  DecidedRecord record;
  std::optional<v1::RegisterBody> registration;
  // Without a job: that of the next registration.
  uint64_t timeline = 1;
  uint64_t config_revision = 0;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_JOB_STATE_H_
