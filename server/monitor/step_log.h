// Decides what a shard or a coordinator logs of decided entries. A job may take thousands of steps
// a second, so that applied steps share a line. Pure but for its memory; one thread.
#ifndef KAON_SERVER_MONITOR_STEP_LOG_H_
#define KAON_SERVER_MONITOR_STEP_LOG_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::monitor {

// Makes the job and the step of a decided entry keys of later lines (log_facts.h). Any thread.
void NoteEntry(const v1::StepPlan& plan);
// Makes the trace of a step a key of later lines, if the shard has accepted the plan of `message`.
// `accepted` is null if it has accepted none. Any thread.
void NoteTrace(const v1::StepPlan* accepted, const v1::CoordinatorToShard& message);

class StepLog {
 public:
  // Returns the line for this entry, empty if none is due. `name` is the entry's. An entry that is
  // no train step always has a line. Train steps have one every ten minutes, with rate, loss
  // and norm. A change between applied and skipped steps has one too, at most once a second.
  std::string Line(const v1::StepRecord& record, const std::string& name, absl::Time now);

 private:
  absl::Time last_line_ = absl::InfinitePast();
  v1::Outcome last_outcome_ = v1::OUTCOME_UNSPECIFIED;
  // Train steps since the last line of one.
  uint64_t steps_ = 0;
  uint64_t skipped_ = 0;
};

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_STEP_LOG_H_
