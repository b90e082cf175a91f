// The calls of a cluster's clients and their results, and the check that one log in one order
// explains all of them (docs/design/reliability.md, T10). The check knows no machine, disk or
// message. It sees only the clients' calls, the log, and the results of the kernels. Plain values
// and a pure function; one thread.
#ifndef KAON_TESTS_SIMULATION_HISTORY_H_
#define KAON_TESTS_SIMULATION_HISTORY_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::simulation {

// Key of an entry of the log. If shards forget, a position alone is not unique: a rollback reuses
// the position of the first entry that it discards.
struct LogKey {
  uint64_t timeline = 1;
  uint64_t position = 0;

  auto operator<=>(const LogKey&) const = default;
};
inline LogKey KeyOf(const v1::StepPlan& plan) { return {plan.timeline(), plan.position()}; }

// One call of a client, from its first attempt to its answer.
struct Operation {
  enum class Kind {
    // A worker begins a step and waits for its record.
    kStep,
    // A reader pulls a version of a parameter.
    kPull,
    // An admin sets hyper-parameters of a group.
    kChange,
    // An admin deletes the job.
    kDeletion,
    // An admin restores a checkpoint.
    kRestore,
    // A reader has read a whole checkpoint.
    kCheckpoint,
  };
  enum class Outcome {
    // It may have taken effect or not: the answer is missing or unclear.
    kUnknown,
    kDone,
    // It never takes effect.
    kRefused,
  };

  Kind kind = Kind::kStep;
  Outcome outcome = Outcome::kUnknown;
  absl::Time called;
  absl::Time returned = absl::InfiniteFuture();
  // kStep, kPull: the client's timeline at the time of the call. kRestore: the timeline in the
  // answer.
  uint64_t timeline = 1;
  uint64_t step = 0;
  // Only for kStep.
  uint32_t rank = 0;
  uint64_t process_nonce = 0;
  // The record that it got, serialized.
  std::string record;
  // kPull: the parameter and its weights.
  uint32_t parameter_id = 0;
  std::vector<float> weights;
  // kChange: the learning rate, which no other change sets. kDeletion: the request's id. kRestore,
  // kCheckpoint: the checkpoint.
  std::string name;
  // kRestore, kCheckpoint: the entry whose state the checkpoint holds.
  LogKey target;
  // kCheckpoint: digest of the content.
  uint64_t digest = 0;
  // kChange, kDeletion, kRestore: the position of its entry in the answer.
  uint64_t position = 0;
};

class History {
 public:
  using Id = size_t;

  Id Call(Operation operation) {
    operations_.push_back(std::move(operation));
    return operations_.size() - 1;
  }
  // Valid until the operation has its answer.
  Operation& operation(Id id) { return operations_[id]; }
  void Return(Id id, Operation::Outcome outcome, absl::Time now) {
    operations_[id].outcome = outcome;
    operations_[id].returned = now;
  }
  const std::deque<Operation>& operations() const { return operations_; }

 private:
  std::deque<Operation> operations_;
};

// Decided records, one timeline after the other.
using Log = std::map<LogKey, v1::StepRecord>;

// Returns an empty string if the entries of `log`, executed one after the other, are an execution
// of `job` that fits every operation. Otherwise returns the contradiction.
// - Each answer equals the log.
// - Operations that were rejected are not in the log, and every entry was requested.
// - Each entry has an instant between the call and the answer of its operations, and the instants
//   are in the order of the log.
// A rollback needs no request. It returns to a state of the job's history at that time; what an
// earlier rollback discarded is not part of that history.
std::string Contradiction(const v1::JobDefinition& job, const Log& log,
                          const std::deque<Operation>& operations);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_HISTORY_H_
