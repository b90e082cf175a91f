// A ShardServer on files of its own, and the coordinator and both workers of the small job, who do
// what a script says: what the directories under golden_entries/ were written by. One thread,
// blocking calls with a deadline.
#ifndef KAON_TESTS_SERVER_SHARD_SCRIPTED_SHARD_H_
#define KAON_TESTS_SERVER_SHARD_SCRIPTED_SHARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "server/shard/shard_server.h"
#include "tests/server/shard/transport/served_shard.h"

namespace kaon::shard {

class ScriptedShard {
 public:
  // On `folder`/data, with the checkpoints of `folder`/checkpoints; both may be there. It does not
  // mind which build wrote them.
  ScriptedShard(const std::string& folder, const std::string& durability);

  // Each is the shard's next entry, voted for, decided and applied. Fails the test otherwise.
  void RegisterAndLoad();
  void Train();
  void ChangeGroup(const std::string& field, const std::string& value);
  // To a checkpoint, or to the shard's snapshot of a step, as the next timeline.
  void Restore(const std::string& checkpoint);
  void RollBack(uint64_t step);
  // No entry: a checkpoint of the state as it is.
  void Checkpoint(const std::string& id);
  // No entry: a ballot, which is on disk when it is answered, and with it all that came before.
  void Promise();
  // Until the shard can be rolled back to that step.
  void AwaitSnapshot(uint64_t step);
  // In order, which takes a snapshot where there is none of the newest state.
  void Stop() { server_->Shutdown(); }
  // And starts again.
  void Restart();

  v1::DescribeShardResponse Describe();

 private:
  void Start();
  v1::ShardState State() { return Describe().state(); }
  // At the next position.
  v1::StepPlan NextPlan();
  // The decision that the only shard's vote leads to.
  void Decide(const v1::StepPlan& plan, const v1::ShardToCoordinator& vote,
              const v1::StepDecision* decision = nullptr);
  void Push(uint32_t rank, const v1::StepPlan& plan, const std::vector<std::vector<float>>& values);

  const std::string folder_;
  const std::string durability_;
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<v1::ShardData::Stub> data_;
  std::unique_ptr<v1::ShardControl::Stub> control_;
  std::unique_ptr<ControlCall> coordinator_;
  uint64_t counter_ = 1;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_SCRIPTED_SHARD_H_
