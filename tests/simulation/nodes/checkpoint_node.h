// An admin of a simulated cluster who takes checkpoints at random moments and sometimes restores
// one. Compares the content of each reported one with the serial execution (history.h). Owned by
// RunCluster; one thread.
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

  // Does nothing if the options want no checkpoints.
  void Start();
  // Returns true once it makes no more requests.
  bool finished() const { return finished_; }
  // Checks that every checkpoint with a manifest is complete and equals the log. An unfinished one
  // has no manifest.
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
  // Adds the content of a checkpoint in `files` to the history; reads every byte.
  absl::Status Note(SimulatedDirectory& files, const std::string& id);
  // Returns true if newer checkpoints, which coordinators take automatically, may have displaced
  // it.
  bool MayBeRemoved(const absl::Status& status) const;
  // Checks that a call may end with this status.
  void CheckPasses(const char* what, const absl::Status& status);

  World& world_;
  AdminCalls calls_;
  const std::vector<ShardNode*> shards_;
  int num_orders_ = 0;
  int num_restores_ = 0;
  // Ids of requested checkpoints, and of the reported ones among them.
  std::vector<std::string> asked_;
  std::vector<std::string> reported_;
  bool finished_ = true;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_CHECKPOINT_NODE_H_
