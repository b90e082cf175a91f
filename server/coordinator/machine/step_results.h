// Tells workers the results of steps: holds the record of the newest step, and the AwaitStep
// streams that wait for a plan or a record. Pure; owned by StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_RESULTS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_RESULTS_H_

#include <cstdint>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/decided_record.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/membership.h"

namespace kaon::coordinator {

class StepResults {
 public:
  // Looks for the record of the newest step in what was read of the shards. If the newest entry is
  // no step, the record may lie before it: then wanted_position() says which record to read.
  void Find(const JobState& job);
  // Position of the record to read from a shard; 0 = none.
  uint64_t wanted_position() const { return wanted_position_; }
  // Takes the record that a shard keeps for wanted_position(). A change of the job makes the record
  // before it the wanted one.
  Actions OnRead(const v1::StepRecord& record);
  void StopReading() { wanted_position_ = 0; }
  // Takes the record of a step that was decided just now.
  void Decided(const DecidedRecord& record);
  // Tells nobody of the newest step any more.
  void Forget() { Decided({}); }

  // Answers a Begin of a step that is not the next one: with its record if it is the newest step,
  // else with an error.
  absl::StatusOr<v1::BeginStepResponse> AnswerBegin(uint32_t rank, uint64_t step,
                                                    const JobState& job,
                                                    const Membership& membership) const;
  // Answers the call, or keeps its stream open until a record or an error ends it. An older stream
  // of the rank ends. `open` is the plan of the open round; empty if none is open.
  Actions Await(CallId call, const v1::AwaitStepRequest& request, const v1::StepPlan& open,
                const JobState& job, const Membership& membership);
  // Ranks that have a stream open for `step`.
  std::set<uint32_t> RanksThatAwait(uint64_t step) const;
  // Ranks that have a stream open for any step.
  std::set<uint32_t> RanksThatAwaitAny() const;
  // Tells the members of `plan` that shards were sent it. A shard that does not have it yet answers
  // pushes UNAVAILABLE.
  Actions AnnouncePlan(const v1::StepPlan& plan) const;
  // Ends every stream that the newest step's record answers or makes pointless.
  Actions AnnounceRecord(const JobState& job, const Membership& membership);

  // Ends every stream.
  Actions Fail(const absl::Status& status);
  // Ends the stream of a rank whose attempt is another than `current`.
  Actions FailOthers(uint32_t rank, const v1::Attempt& current);
  // Ends the streams of ranks that the job no longer has.
  Actions FailDismissed(const Membership& membership);
  // Ends the streams of ranks whose multipliers differ from the agreed ones.
  Actions RefuseMultipliers(const Membership::Agreed& agreed, uint64_t step);
  void Cancel(CallId call) { waiters_.erase(call); }

 private:
  // An open AwaitStep stream.
  struct Waiter {
    uint32_t rank = 0;
    v1::Attempt attempt;
    uint64_t step = 0;
  };

  // Returns whether the newest record is the result of `step` for the rank.
  bool IsDecided(uint32_t rank, uint64_t step, const JobState& job,
                 const Membership& membership) const;
  absl::Status CheckAwait(const v1::AwaitStepRequest& request, const JobState& job,
                          const Membership& membership) const;
  // Returns false for a rank that takes no part in the step of `plan`, or whose attempt was
  // replaced: it has nothing to push.
  static bool IsMember(const v1::StepPlan& plan, const Waiter& waiter);
  // Ends the streams for which `result_of(waiter)` returns a status: OK stands for the newest
  // record.
  template <typename ResultOf>
  Actions EndSome(const ResultOf& result_of);

  // Absent before the first step, and while wanted_position_ is read.
  DecidedRecord newest_;
  uint64_t wanted_position_ = 0;
  std::map<CallId, Waiter> waiters_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_RESULTS_H_
