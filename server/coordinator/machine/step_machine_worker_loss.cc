// The machine gives up workers that a step has waited for too long.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ballot.h"
#include "server/coordinator/machine/step_machine.h"
#include "server/mutation/mutation.h"

namespace kaon::coordinator {

// Returns whether a worker may be why the next step is not decided. "The initial weights are rank
// 0's alone, lost or not". While no call could be answered, no worker is to blame.
bool StepMachine::MayLoseWorkers() const {
  const bool waits = phase_ == Phase::kReady || OpenPlan().has_step();
  if (!waits || !job_.weights_loaded || !stopped_.ok() || !CheckHeard().ok()) return false;
  const v1::JobDefinition& job = job_.registration->definition();
  return !job.paused() && (job.worker_loss() == v1::WORKER_LOSS_POLICY_SHRINK ||
                           job.worker_loss() == v1::WORKER_LOSS_POLICY_FAIL);
}

bool StepMachine::RoundIsWhole() const {
  return OpenPlan().has_step() &&
         membership_.AreMembers(plan_.step().members(), plan_.step().step());
}

// Returns the ranks that the step waits for. A worker that joined anew under an open round has to
// begin first; until then the step waits for it alone.
std::vector<uint32_t> StepMachine::LateWorkers() const {
  const uint64_t step = job_.NextStep();
  std::vector<uint32_t> late;
  if (!RoundIsWhole()) {
    late = membership_.MissingRanks(step);
  } else if (const std::optional<uint32_t> owing = deadline_.Owing();
             owing && membership_.HasBegun(*owing, step)) {
    late.push_back(*owing);
  }
  return late;
}

void StepMachine::OnAwaited(int shard, const v1::DescribeShardResponse& description) {
  // The shard may have answered before the plan reached it, so that the answer is about another
  // entry or round. A late answer may also come after the vote.
  if (!OpenPlan().has_step() || description.state().applied_position() != job_.position) return;
  if (proto::Compare(description.awaited_ballot(), plan_.ballot()) != 0) return;
  if (description.awaited_round() != plan_.round() || shards_[shard].prepared) return;
  deadline_.OnAwaited(shard,
                      {description.awaited_ranks().begin(), description.awaited_ranks().end()});
}

// protocol.md 2.2, "Worker lost": a step waits for the worker that another worker, with a stream
// open, has begun. The worker is lost after `worker_loss_seconds` with no stream of it open and no
// call of it heard. After `step_seconds` it is lost in any case. Time in which the coordinator did
// not run or did not hear a shard does not count, nor does a pause.
void StepMachine::LoseWorkers(absl::Time now) {
  const v1::JobDefinition& job =
      job_.registration ? job_.registration->definition() : v1::JobDefinition::default_instance();
  const uint64_t step = job_.NextStep();
  const std::set<uint32_t> there = results_.RanksThatAwait(step);
  const bool may = MayLoseWorkers();
  std::vector<uint32_t> silent;
  if (may) silent = membership_.AbsentRanks(step, there);
  silent = watch_.Tick(now, silent, absl::Seconds(job.worker_loss_seconds()));
  deadline_.OnStep(job_.timeline, step);
  std::vector<uint32_t> late;
  if (may && job.has_step_seconds()) {
    std::set<uint32_t> waiting = there;
    std::erase_if(waiting, [&](uint32_t rank) { return !membership_.HasBegun(rank, step); });
    const auto keeps_nobody_waiting = [&](uint32_t rank) {
      return waiting.size() == waiting.count(rank);
    };
    std::vector<uint32_t> ranks = LateWorkers();
    std::erase_if(ranks, keeps_nobody_waiting);
    late =
        deadline_.Tick(watch_.passed(), ranks, RoundIsWhole(), absl::Seconds(job.step_seconds()));
    std::erase_if(late, [&](uint32_t rank) {
      return membership_.lost().count(rank) > 0 || keeps_nobody_waiting(rank);
    });
    if (Mutated(Mutation::kHeldForEver)) late.clear();
    const bool ask = deadline_.ShouldAsk();
    for (int i = 0; ask && i < shards_.size(); ++i) {
      if (shards_[i].connected && !shards_[i].prepared) Do(ReadAwaited{i});
    }
  }
  const auto waited = [step](double seconds, const char* what) {
    return absl::StrCat("step ", step, " waited ", seconds, " s for ", what);
  };
  if (!silent.empty()) {
    Lose(silent, waited(job.worker_loss_seconds(), "it"), "");
  } else if (!late.empty()) {
    const std::string why = waited(job.step_seconds(), "its gradients (step_seconds)");
    Lose(late, why, why);
  }
}

// "Policy per job `wait` (default) | `shrink` (new member set and round, mean re-weighted) |
// `fail`. Never a partial contribution." Under `shrink`, an open round goes on without a worker
// that comes back. Its pushes are ABORTED and its AwaitStep ends with the step's record. The next
// step waits for the worker, and so does a round that must be opened anyway. Under `fail` the
// holder stops the job until it is restored. Another holder has to wait for as long to find the
// loss. If it trains on, the loss is over.
void StepMachine::Lose(const std::vector<uint32_t>& ranks, const std::string& why,
                       const std::string& shown) {
  if (job_.registration->definition().worker_loss() == v1::WORKER_LOSS_POLICY_FAIL) {
    failure_ = {{job_.position, job_.timeline},
                absl::FailedPreconditionError(absl::StrCat(
                    "rank ", absl::StrJoin(ranks, ", "), " was lost: ", why,
                    " (worker_loss is fail); restore the job from a checkpoint to go on"))};
    return Stop(failure_.second);
  }
  for (const uint32_t rank : ranks) {
    membership_.Lose(rank, shown);
    deadline_.OnLost(rank);
    if (!shown.empty()) joins_.NoteLate(rank);
  }
  MaybeOpenStepRound();
}

}  // namespace kaon::coordinator
