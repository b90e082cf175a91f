// An admin of a simulated cluster who keeps checkpoints: asks for one at random moments, and
// sometimes takes the job back to one. Compares the content of each that was reported with the
// serial execution (history.h). Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_CHECKPOINT_NODE_H_
#define KAON_TESTS_SIMULATION_NODES_CHECKPOINT_NODE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/admin.pb.h"
#include "tests/simulation/disk/simulated_disk.h"
#include "tests/simulation/nodes/admin_calls.h"
#include "tests/simulation/nodes/coordinator_node.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class CheckpointNode {
 public:
  CheckpointNode(World& world, std::vector<CoordinatorNode*> coordinators,
                 std::vector<ShardNode*> shards);

  // Nothing if the options want none.
  void Start();
  // It asks for nothing any more.
  bool finished() const { return finished_; }
  // Whatever has a manifest is whole and is what the log says: an unfinished one has none.
  void CheckAll();

 private:
  void NextLater();
  void Next();
  void Create();
  void OnCreated(const std::string& id,
                 const absl::StatusOr<v1::CreateCheckpointResponse>& created);
  void Restore(const std::string& id);
  void OnRestored(History::Id operation,
                  const absl::StatusOr<v1::RestoreCheckpointResponse>& restored);
  // Says to the history what a checkpoint in `files` holds; reads every byte.
  absl::Status Note(SimulatedDirectory& files, const std::string& id);
  // Newer ones, which coordinators take by themselves, push older ones out.
  bool MayBeRemoved(const absl::Status& status) const;
  // Errors that a call may end with.
  void CheckPasses(const char* what, const absl::Status& status);

  World& world_;
  AdminCalls calls_;
  const std::vector<ShardNode*> shards_;
  int num_orders_ = 0;
  int num_restores_ = 0;
  // Ids that were asked for, and those of them that were reported.
  std::vector<std::string> asked_;
  std::vector<std::string> reported_;
  bool finished_ = true;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_CHECKPOINT_NODE_H_
