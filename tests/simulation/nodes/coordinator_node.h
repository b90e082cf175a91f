// One coordinator process of a simulated cluster: its machine, its streams to the shards, and the
// calls of workers. It can be killed, started again with a new incarnation, and frozen. Owned by
// RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_COORDINATOR_NODE_H_
#define KAON_TESTS_SIMULATION_NODES_COORDINATOR_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/checkpoint/checkpoint_finisher.h"
#include "server/coordinator/machine/step_machine.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/skewed_clock.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class CoordinatorNode {
 public:
  // Gets each answer of a call; AwaitFailed with UNAVAILABLE if the process dies first.
  using OnAnswer = std::function<void(const coordinator::CoordinatorAction&)>;
  using MakeCall = std::function<void(coordinator::StepMachine&, coordinator::CallId)>;

  CoordinatorNode(World& world, int index, std::vector<ShardNode*> shards);

  // Address that workers call: "c0", "c1", ...
  std::string address() const { return absl::StrCat("c", index_); }
  bool alive() const { return machine_ != nullptr; }

  void Start();
  void Kill();
  // Stops the process for this long; events that arrive meanwhile wait.
  void Freeze(absl::Duration duration);
  // Drops everything between it and the shards for this long, silently.
  void CutOff(absl::Duration duration);

  // Returns true if the job that it holds has stopped because a worker was lost (worker_loss is
  // fail).
  bool stopped_by_loss() const;

  // Answers with AwaitFailed immediately if the process is dead.
  coordinator::CallId Call(const MakeCall& make, OnAnswer on_answer);
  // Drops a call whose caller is gone.
  void HangUp(coordinator::CallId call);

 private:
  struct Link {
    bool open = false;
    shard::StreamId stream = 0;
    // The last messages of the link. Copies of them may arrive after newer messages.
    ShardNode::Message last_state;
    std::optional<v1::CoordinatorToShard> last_plan;
  };

  // Runs `event` on the machine of this life: later if frozen, never if it died.
  void Run(std::function<void()> event);
  void Connect(int shard);
  void Break(int shard);
  // Called when the shard's process has died.
  void OnClosed(int shard, shard::StreamId stream);
  void Drain();
  void Read(const coordinator::ReadRecord& read);
  void Ask(int shard);
  void CarryOut(const coordinator::CoordinatorAction& action);
  // Finishes a checkpoint as the checkpoint thread does; the process may die in the middle.
  void Finish(const coordinator::FinishCheckpoint& finish);
  void SendToShard(int shard, const v1::CoordinatorToShard& message);
  // Records that this process has stopped a job. It must not plan another step of that timeline.
  void NoteStop();
  void CheckStopped(const v1::StepPlan& plan);
  // Counts and checks that this process has given up the worker that holds steps.
  void NoteHeldOut();
  // Delivers a copy of the message that `message` makes obsolete, while `message` is on its way.
  void RepeatObsolete(int shard, const v1::CoordinatorToShard& message);
  void Receive(int shard, shard::StreamId stream, ShardNode::Message message);
  void Answer(coordinator::CallId call, const coordinator::CoordinatorAction& action, bool last);

  World& world_;
  const int index_;
  // Clock of this machine, the only one that the process sees.
  const SkewedClock clock_{world_.options(), world_.queue(), 1000 + static_cast<uint64_t>(index_)};
  const std::vector<ShardNode*> shards_;
  std::unique_ptr<coordinator::StepMachine> machine_;
  // Null without checkpoints.
  std::unique_ptr<checkpoint::CheckpointDirectory> files_;
  std::unique_ptr<coordinator::CheckpointFinisher> finisher_;
  uint64_t life_ = 0;
  absl::Time frozen_until_ = absl::InfinitePast();
  absl::Time cut_off_until_ = absl::InfinitePast();
  std::vector<Link> links_;
  coordinator::CallId next_call_ = 1;
  std::map<coordinator::CallId, OnAnswer> calls_;
  uint64_t wake_ = 0;
  bool held_ = false;
  // Timeline and step in which this process has stopped the job because a worker was lost.
  std::optional<std::pair<uint64_t, uint64_t>> stopped_in_;
  // Why it has given up the worker that holds steps; empty while it has not.
  std::string held_out_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_COORDINATOR_NODE_H_
