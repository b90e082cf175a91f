// What the shards have answered the coordinators, under which ballot, as it was delivered: a
// coordinator may go by nothing else (protocol.md 2.1 rules 1 and 3). Owned by Invariants; one
// thread.
#ifndef KAON_TESTS_SIMULATION_DELIVERED_ANSWERS_H_
#define KAON_TESTS_SIMULATION_DELIVERED_ANSWERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::simulation {

class DeliveredAnswers {
 public:
  explicit DeliveredAnswers(int num_shards) : num_shards_(num_shards) {}

  // That coordinator is about to be told this by that shard.
  void OnDelivered(int coordinator, int shard, const v1::ShardToCoordinator& message);

  // Empty, or why nothing that was answered under `ballot` allows that coordinator to open a round
  // with this plan, or to decide it.
  std::string CheckPlan(int coordinator, const v1::Ballot& ballot, const v1::StepPlan& plan) const;
  std::string CheckDecision(int coordinator, const v1::Ballot& ballot,
                            const v1::StepPlan& plan) const;

 private:
  // Of one shard, under the newest ballot that it answered.
  struct Answers {
    v1::Ballot ballot;
    // It answered the promise: this is what it has applied.
    bool is_read = false;
    uint64_t applied_position = 0;
    // Plans that it showed a PREPARE or the record of, serialized, ballot and round of each
    // included; and the newest (ballot, round) of a PREPARE, for messages.
    std::set<std::string> plans;
    v1::StepPlan newest;
  };

  void AddPrepared(const v1::Prepared& prepared, Answers& answers);
  // Null, with `*why`, unless the shard has answered the promise of `ballot`.
  const Answers* Read(int coordinator, int shard, const v1::Ballot& ballot, std::string* why) const;

  const int num_shards_;
  // By coordinator and shard.
  std::map<std::pair<int, int>, Answers> answers_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_DELIVERED_ANSWERS_H_
