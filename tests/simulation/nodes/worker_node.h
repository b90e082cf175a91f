// One worker rank of a simulated cluster. Registers the job, loads the weights (rank 0), and trains
// step after step through the production WorkerSession. Its process can be killed and started again
// with other gradients. Owned by RunCluster; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_WORKER_NODE_H_
#define KAON_TESTS_SIMULATION_NODES_WORKER_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/worker_session.h"
#include "tests/simulation/nodes/coordinator_node.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/push_stream.h"
#include "tests/simulation/skewed_clock.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class WorkerNode {
 public:
  WorkerNode(World& world, uint32_t rank, v1::JobDefinition job,
             std::vector<CoordinatorNode*> coordinators, std::vector<ShardNode*> shards);

  void Start();
  void Kill();
  // Kills the process, which never restarts.
  void KillForGood();
  // Abandons the step in progress, if any, and retries it with another gradient.
  void GiveUp();
  bool gone() const { return gone_; }
  // Runs `fault` soon after the next push begins, unless the process dies before.
  void AtNextPush(std::function<void()> fault) { at_next_push_ = std::move(fault); }
  bool alive() const { return session_ != nullptr; }
  // Returns the newest step whose decision this rank knows.
  uint64_t finished_step() const { return finished_step_; }

 private:
  using OnAnswer = CoordinatorNode::OnAnswer;

  void Register();
  void JoinAfter(absl::Duration delay);
  void BeginNext();
  void Drain();
  void CarryOut(const client::SessionAction& action);
  void OnJoinOver(const client::JoinOver& over);
  void OnStepOver(const client::StepOver& over);
  // Checks that FAILED_PRECONDITION reports the stop only of a job that stops.
  void NoteLoss(const absl::Status& status);
  bool EndsWith(const absl::Status& status) const;
  // Ends the process with an error and restarts it, as its supervisor would.
  void Supervise();

  void Join(const client::CallJoin& call);
  void Begin(const client::CallBegin& call);
  void Await(const client::CallAwait& call);
  // Tells the coordinator after a while that the stream of its AwaitStep is gone.
  void HangUp();
  void Push(const client::StartPush& call);
  // Continues from a checkpoint.
  void OnRewound(const client::Joined& joined);
  // Reads the version of every parameter once it is available.
  void Pull(uint64_t step);

  // Makes a call whose request and answer have latency and may be lost or repeated. A lost one
  // becomes UNAVAILABLE after a timeout. Runs `on_answer` once.
  void Unary(const std::string& address, const CoordinatorNode::MakeCall& make, OnAnswer on_answer);
  // Runs `event` after a latency in this life of the process.
  void Later(absl::Duration delay, std::function<void()> event);
  CoordinatorNode* Find(const std::string& address) const;

  World& world_;
  const uint32_t rank_;
  // Clock of this machine, the only one that the process sees.
  const SkewedClock clock_{world_.options(), world_.queue(), 3000 + static_cast<uint64_t>(rank_)};
  const v1::JobDefinition job_;
  const std::vector<CoordinatorNode*> coordinators_;
  const std::vector<ShardNode*> shards_;

  std::unique_ptr<client::WorkerSession> session_;
  uint64_t life_ = 0;
  bool gone_ = false;
  // True between the begin and the end of a step.
  bool stepping_ = false;
  // Timeline, step and nonce of the newest BeginStep; `given_up_` is that of an abandoned step.
  using Begun = std::tuple<uint64_t, uint64_t, uint64_t>;
  Begun begun_;
  Begun given_up_;
  uint64_t nonce_ = 0;
  // Timeline of the job when this process first joined it; 0 before.
  uint64_t attached_timeline_ = 0;
  uint64_t finished_step_ = 0;
  uint64_t open_step_ = 0;
  // Timeline of the job, as far as this process knows.
  uint64_t timeline_ = 1;
  // The step in progress.
  History::Id operation_ = 0;
  uint64_t pushes_of_step_ = 0;
  // Calls whose results still matter.
  std::map<uint64_t, std::shared_ptr<PushStream>> pushes_;
  // The coordinator of the newest AwaitStep.
  CoordinatorNode* awaited_ = nullptr;
  coordinator::CallId await_call_ = 0;
  absl::Time wake_ = absl::InfiniteFuture();
  std::function<void()> at_next_push_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_WORKER_NODE_H_
