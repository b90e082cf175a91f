// Words for people about the machine's work and its problems. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STATUS_TEXT_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STATUS_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/machine_phase.h"
#include "server/coordinator/machine/membership.h"

namespace kaon::coordinator {

// References to the machine's own values, for the length of one call.
struct StatusFacts {
  MachinePhase phase = MachinePhase::kStandby;
  // OK while the job can go on.
  const absl::Status& stopped;
  // Address of the other coordinator that holds the shards; empty if unknown.
  std::string holder;
  // A shard counts as not heard after two takeover times of silence.
  absl::Duration takeover;
  const std::vector<ShardView>& shards;
  const JobState& job;
  const Membership& membership;
  // Plan of the open round.
  const v1::StepPlan& plan;
  // Members of the open round that have no stream open, ascending.
  std::vector<uint32_t> absent;
  // Shard for whose drain the next step waits.
  std::optional<int> drained;
};

// Returns by shard why it takes no part; empty if it does.
std::vector<std::string> ShardProblems(const StatusFacts& facts);
// Returns one line: the work, who it waits for, and the problems of the first few shards.
std::string PhaseText(const StatusFacts& facts);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STATUS_TEXT_H_
