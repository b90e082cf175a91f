// What the clients of a cluster called and were told, and whether one log in one order explains all
// of it (docs/design/reliability.md, T10). The check knows of no machine, disk or message: only of
// the clients' calls, the log, and what the kernels make of it. Plain values and a pure function;
// one thread.
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

// Which entry of the log. Positions alone are used again where shards forget: a rollback takes the
// place of what it takes back.
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
    // A reader asks for a version of a parameter.
    kPull,
    // An admin sets hyper-parameters of a group.
    kChange,
    // An admin takes the job back to a checkpoint.
    kRestore,
    // Somebody has read a whole checkpoint.
    kCheckpoint,
  };
  enum class Outcome {
    // It may have taken effect or not: no answer, or one that says neither.
    kUnknown,
    kDone,
    // It never takes effect.
    kRefused,
  };

  Kind kind = Kind::kStep;
  Outcome outcome = Outcome::kUnknown;
  absl::Time called;
  absl::Time returned = absl::InfiniteFuture();
  // kStep, kPull: as the client knew when it called. kRestore: as the answer says.
  uint64_t timeline = 1;
  uint64_t step = 0;
  // kStep.
  uint32_t rank = 0;
  uint64_t process_nonce = 0;
  // What it was told, serialized.
  std::string record;
  // kPull, and what was read.
  uint32_t parameter_id = 0;
  std::vector<float> weights;
  // kChange: the learning rate, which no other change sets. kRestore, kCheckpoint: the checkpoint.
  std::string name;
  // kRestore, kCheckpoint: the entry whose state the checkpoint holds.
  LogKey target;
  // kCheckpoint: of what was read.
  uint64_t digest = 0;
  // kChange, kRestore: where the answer says that its entry is.
  uint64_t position = 0;
};

class History {
 public:
  using Id = size_t;

  Id Call(Operation operation) {
    operations_.push_back(std::move(operation));
    return operations_.size() - 1;
  }
  // Until it is answered.
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

// Empty if, carried out one after the other, the entries of `log` are an execution of `job` that
// every operation fits: each answer is what the log says, what was refused is not in it, every
// entry has been asked for, and some order of instants, each between the call and the answer of the
// operations it is part of, is the log's. A rollback, which nobody asks for, goes back to a state
// of the job's history as it is then: what was taken back before is no part of it. Otherwise what
// is wrong.
std::string Contradiction(const v1::JobDefinition& job, const Log& log,
                          const std::deque<Operation>& operations);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_HISTORY_H_
