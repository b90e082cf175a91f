// Random lives of one shard: what coordinators and workers sent it, position by position, with
// takeovers, re-stamped and withdrawn rounds, restarted workers, missing and non-finite gradients,
// skipped steps and changes of groups. The same operations can be played to any shard, from the
// position it stands at. Used by the tests of replay; one thread.
#ifndef KAON_TESTS_SERVER_SHARD_SHARD_HISTORY_H_
#define KAON_TESTS_SERVER_SHARD_SHARD_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kaon/v1/agreement.pb.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {

// One of them is set.
struct Operation {
  // Of the log entry it is about.
  uint64_t position = 0;
  // Counter of a ballot to promise.
  uint64_t promise = 0;
  std::optional<v1::StepPlan> plan;
  // A worker pushes all that the shard lacks for `step`.
  std::optional<v1::Member> push;
  uint64_t step = 0;
  std::optional<v1::StepRecord> decision;
};

struct HistoryCounts {
  int skips = 0;
  int group_changes = 0;
  int restamps = 0;
  int withdrawals = 0;
};

struct ShardHistory {
  std::vector<Operation> operations;
  HistoryCounts counts;
};

// Everything follows from the seed.
ShardHistory MakeHistory(uint64_t seed, int num_steps);

// What a shard shows at each position once it is decided.
struct Observed {
  // Its vote, and its description without what is counted since the process started.
  std::string prepared;
  std::string description;

  bool operator==(const Observed& other) const {
    return prepared == other.prepared && description == other.description;
  }
};

// Plays the operations of positions from `from` on; fails the test when one is not decided.
std::map<uint64_t, Observed> Play(const ShardHistory& history, uint64_t from, DrivenShard& shard);

std::string Describe(DrivenShard& shard);

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_SHARD_HISTORY_H_
