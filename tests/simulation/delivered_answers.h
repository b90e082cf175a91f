// The answers of shards to coordinators, by ballot, as delivered. A coordinator may decide by
// nothing else (protocol.md 2.1 rules 1 and 3). Owned by Invariants; one thread.
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

  // Records an answer just before the coordinator gets it.
  void OnDelivered(int coordinator, int shard, const v1::ShardToCoordinator& message);

  // CheckPlan returns why no answer under `ballot` allows that coordinator to open a round with
  // this plan; CheckDecision, why none allows to decide it. Both return an empty string if one
  // does.
  std::string CheckPlan(int coordinator, const v1::Ballot& ballot, const v1::StepPlan& plan) const;
  std::string CheckDecision(int coordinator, const v1::Ballot& ballot,
                            const v1::StepPlan& plan) const;

 private:
  // Answers of one shard under the newest ballot that it answered.
  struct Answers {
    v1::Ballot ballot;
    // True if it answered the promise; `applied_position` is from that answer.
    bool is_read = false;
    uint64_t applied_position = 0;
    // Serialized plans, each with ballot and round, whose PREPARE or record the shard showed.
    // `newest` is the newest (ballot, round) of a PREPARE, for messages.
    std::set<std::string> plans;
    v1::StepPlan newest;
  };

  void AddPrepared(const v1::Prepared& prepared, Answers& answers);
  // Returns null and sets `*why`, unless the shard has answered the promise of `ballot`.
  const Answers* Read(int coordinator, int shard, const v1::Ballot& ballot, std::string* why) const;

  const int num_shards_;
  // Key: coordinator and shard.
  std::map<std::pair<int, int>, Answers> answers_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_DELIVERED_ANSWERS_H_
