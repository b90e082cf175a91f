// One worker rank of a simulated cluster: registers the job, loads the weights (rank 0) and trains
// step after step through the production WorkerSession; its process can be killed and started again
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
  // Never started again.
  void KillForGood();
  // The caller ends the step it has begun, if any, and begins it again with another gradient.
  void GiveUp();
  bool gone() const { return gone_; }
  // `fault` happens soon after it has begun to push the next time, unless it dies before.
  void AtNextPush(std::function<void()> fault) { at_next_push_ = std::move(fault); }
  bool alive() const { return session_ != nullptr; }
  // Newest step this rank knows to be decided.
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
  // That the job has stopped is said as FAILED_PRECONDITION, and only of a job that does.
  void NoteLoss(const absl::Status& status);
  // The process ends with an error and is started again, as its supervisor would.
  void Supervise();

  void Join(const client::CallJoin& call);
  void Begin(const client::CallBegin& call);
  void Await(const client::CallAwait& call);
  // The coordinator hears, after a while, that the stream of its AwaitStep is gone.
  void HangUp();
  void Push(const client::StartPush& call);
  // The job goes on from a checkpoint.
  void OnRewound(const client::Joined& joined);
  // Reads the version of every parameter, whenever it is there.
  void Pull(uint64_t step);

  // Requests and answers travel with latency, may be lost or repeated; a lost one becomes
  // UNAVAILABLE after a timeout. `on_answer` runs once.
  void Unary(const std::string& address, const CoordinatorNode::MakeCall& make, OnAnswer on_answer);
  // Runs `event` after a latency in this life of the process.
  void Later(absl::Duration delay, std::function<void()> event);
  CoordinatorNode* Find(const std::string& address) const;

  World& world_;
  const uint32_t rank_;
  // Of this machine; the process that runs on it sees no other.
  const SkewedClock clock_{world_.options(), world_.queue(), 3000 + static_cast<uint64_t>(rank_)};
  const v1::JobDefinition job_;
  const std::vector<CoordinatorNode*> coordinators_;
  const std::vector<ShardNode*> shards_;

  std::unique_ptr<client::WorkerSession> session_;
  uint64_t life_ = 0;
  bool gone_ = false;
  // Between a step's begin and its end.
  bool stepping_ = false;
  // Timeline, step and nonce of the newest BeginStep, and of the newest before a step was given up.
  using Begun = std::tuple<uint64_t, uint64_t, uint64_t>;
  Begun begun_;
  Begun given_up_;
  uint64_t nonce_ = 0;
  uint64_t finished_step_ = 0;
  uint64_t open_step_ = 0;
  // Of the job, as far as this process knows.
  uint64_t timeline_ = 1;
  // The step that is begun.
  History::Id operation_ = 0;
  uint64_t pushes_of_step_ = 0;
  // Calls that still matter.
  std::map<uint64_t, std::shared_ptr<PushStream>> pushes_;
  // Where the newest AwaitStep arrived.
  CoordinatorNode* awaited_ = nullptr;
  coordinator::CallId await_call_ = 0;
  absl::Time wake_ = absl::InfiniteFuture();
  std::function<void()> at_next_push_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_WORKER_NODE_H_
