// An admin of a simulated cluster. Changes hyper-parameters of groups at random moments, each with
// the revision it has read, pauses the job for a while, and deletes it. Retries when an answer is
// lost. Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_ADMIN_NODE_H_
#define KAON_TESTS_SIMULATION_NODES_ADMIN_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "tests/simulation/nodes/admin_calls.h"
#include "tests/simulation/nodes/coordinator_node.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class AdminNode {
 public:
  AdminNode(World& world, std::vector<CoordinatorNode*> coordinators,
            std::vector<ShardNode*> shards);

  void Start();
  // Returns true once as many changes as it wanted have the answer OK, and the job is not paused.
  bool finished() const;

 private:
  // One change, whose earlier answers may have been lost.
  struct Change {
    v1::SetGroupRequest request;
    bool uncertain = false;
    History::Id operation = 0;
  };

  void Later(absl::Duration delay, std::function<void()> event);
  void ReadRevision();
  void Draw(uint64_t revision, bool paused);
  void DrawOfGroup();
  void Send();
  void OnAnswer(const coordinator::CoordinatorAction& action);
  void OnDone(uint64_t revision);
  void Delete(uint64_t timeline);
  void SendDeletion();
  void OnDeleted(const absl::StatusOr<v1::DeleteJobResponse>& deleted);
  // Checks that every shard has applied the entry at `position`, which was answered.
  void CheckApplied(const char* what, uint64_t position);

  World& world_;
  AdminCalls calls_;
  const std::vector<ShardNode*> shards_;
  Change change_;
  // The newest deletion, and how many it has asked for.
  v1::DeleteJobRequest deletion_;
  History::Id deletion_operation_ = 0;
  int num_deletions_ = 0;
  // The newest change, or the newest answer, says that the job is paused.
  bool paused_ = false;
  uint64_t drawn_ = 0;
  size_t num_done_ = 0;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_ADMIN_NODE_H_
