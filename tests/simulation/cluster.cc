#include "tests/simulation/cluster.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/admin_node.h"
#include "tests/simulation/coordinator_node.h"
#include "tests/simulation/model.h"
#include "tests/simulation/shard_node.h"
#include "tests/simulation/worker_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

namespace {

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : world_(options), job_(TinyJob(options.num_workers)) {
    std::vector<ShardNode*> shards;
    for (int i = 0; i < options.num_shards; ++i) {
      shards_.push_back(std::make_unique<ShardNode>(world_, i));
      shards.push_back(shards_.back().get());
    }
    world_.set_invariants(std::make_unique<Invariants>(
        [this](int shard) -> const auto& { return shards_[shard]->machine(); },
        options.num_shards));
    std::vector<CoordinatorNode*> coordinators;
    for (int i = 0; i < options.num_coordinators; ++i) {
      coordinators_.push_back(std::make_unique<CoordinatorNode>(world_, i, shards));
      coordinators.push_back(coordinators_.back().get());
    }
    admin_ = std::make_unique<AdminNode>(world_, coordinators, shards);
    for (int i = 0; i < options.num_workers; ++i) {
      workers_.push_back(std::make_unique<WorkerNode>(world_, i, job_, coordinators, shards));
    }
  }

  ClusterResult Run() {
    for (auto& coordinator : coordinators_) coordinator->Start();
    for (auto& worker : workers_) worker->Start();
    admin_->Start();
    const absl::Time faults_end = world_.now() + world_.options().fault_phase;
    ScheduleFault(faults_end);
    world_.queue().At(faults_end, [this] { Heal(); });
    const absl::Time end = faults_end + world_.options().liveness_limit;
    while (world_.invariants().violation().empty() && !Finished()) {
      if (!world_.queue().RunOne() || world_.now() > end) {
        world_.invariants().Violated(absl::StrCat("no progress: ", Progress()));
      }
    }
    // "after faults stop, bounded takeovers": a sleeper may wake up once more, then one holder
    // stays.
    const int takeovers = world_.result().takeovers - takeovers_under_faults_;
    if (!world_.faulty() && takeovers > 2 * world_.options().num_coordinators + 2) {
      world_.invariants().Violated(absl::StrCat(takeovers, " takeovers after faults had stopped"));
    }
    if (world_.invariants().violation().empty()) {
      CheckWeights();
      admin_->CheckLog();
    }
    ClusterResult& result = world_.result();
    result.violation = world_.invariants().violation();
    result.num_events = world_.queue().num_run();
    for (const auto& [position, record] : world_.invariants().records()) {
      if (!record.plan().has_step()) continue;
      result.applied_step = std::max(result.applied_step, record.plan().step().step());
      result.skipped_steps += record.decision().outcome() == v1::OUTCOME_SKIP;
    }
    return result;
  }

 private:
  bool Finished() const {
    return admin_->finished() &&
           std::all_of(workers_.begin(), workers_.end(),
                       [this](const auto& worker) {
                         return worker->finished_step() >= world_.options().num_steps;
                       }) &&
           std::all_of(shards_.begin(), shards_.end(), [this](const auto& shard) {
             return shard->machine().applied_step() >= world_.options().num_steps;
           });
  }

  std::string Progress() const {
    std::string text;
    for (const auto& shard : shards_) {
      absl::StrAppend(&text, "shard at position ", shard->machine().applied_position(), "; ");
    }
    for (const auto& worker : workers_) {
      absl::StrAppend(&text, "worker finished step ", worker->finished_step(), "; ");
    }
    if (!admin_->finished()) absl::StrAppend(&text, "the admin waits");
    return text;
  }

  void ScheduleFault(absl::Time faults_end) {
    const absl::Duration mean = world_.options().time_between_faults;
    const absl::Time at = world_.now() + world_.Between(mean * 0.1, mean * 1.9);
    if (at >= faults_end) return;
    world_.queue().At(at, [this, faults_end] {
      Fault();
      ScheduleFault(faults_end);
    });
  }

  void Fault() {
    const absl::Duration downtime =
        world_.Between(absl::Milliseconds(10), absl::Milliseconds(1500));
    if (world_.options().bug == SeededBug::kForgetfulShard) {
      return shards_[world_.Below(shards_.size())]->Forget();
    }
    switch (world_.Below(4)) {
      case 0: {
        CoordinatorNode& node = *coordinators_[world_.Below(coordinators_.size())];
        if (!node.alive()) return;
        ++world_.result().coordinator_kills;
        node.Kill();
        world_.queue().After(downtime, [&node] { node.Start(); });
        return;
      }
      case 1: {
        CoordinatorNode& node = *coordinators_[world_.Below(coordinators_.size())];
        if (!node.alive()) return;
        ++world_.result().coordinator_freezes;
        node.Freeze(downtime * 2);
        return;
      }
      case 2: {
        CoordinatorNode& node = *coordinators_[world_.Below(coordinators_.size())];
        if (!node.alive()) return;
        ++world_.result().partitions;
        node.CutOff(downtime * 2);
        return;
      }
      default: {
        WorkerNode& node = *workers_[world_.Below(workers_.size())];
        if (!node.alive()) return;
        ++world_.result().worker_kills;
        node.Kill();
        world_.queue().After(downtime, [&node] {
          if (!node.alive()) node.Start();
        });
      }
    }
  }

  void Heal() {
    world_.Trace("faults stop");
    world_.StopFaults();
    takeovers_under_faults_ = world_.result().takeovers;
  }

  // Every shard's weights are those of the serial run of the decided records, to the bit.
  void CheckWeights() {
    SerialReplay replay(job_);
    for (const auto& [position, record] : world_.invariants().records()) {
      // P4: each record says what state the entry found.
      if (record.decision().state_digest() != replay.StateDigest()) {
        world_.invariants().Violated(absl::StrCat(
            "record of position ", position, " has state digest ", record.decision().state_digest(),
            ", the serial run ", replay.StateDigest()));
      }
      replay.Apply(record);
      if (record.plan().has_step()) CheckPulled(record.plan().step().step(), replay);
    }
    if (world_.invariants().pulled().empty()) world_.invariants().Violated("nothing was pulled");
    for (auto& shard : shards_) {
      const shard::ShardMachine& machine = shard->machine();
      for (const v1::ParameterPlacement& home : machine.registration()->placement().parameters()) {
        if (home.shard() != machine.shard()) continue;
        const std::vector<float> held = shard->Weights(home.parameter_id());
        if (held != replay.weights()[home.parameter_id()]) {
          world_.invariants().Violated(
              absl::StrCat("weights of parameter ", home.parameter_id(), " on shard ",
                           machine.shard(), " differ from the serial run of the decided steps"));
        }
      }
    }
  }

  void CheckPulled(uint64_t step, const SerialReplay& replay) {
    for (int id = 0; id < job_.parameters_size(); ++id) {
      const auto found = world_.invariants().pulled().find({step, id});
      if (found == world_.invariants().pulled().end()) continue;
      if (found->second != replay.weights()[id]) {
        world_.invariants().Violated(absl::StrCat("version ", step, " of parameter ", id,
                                                  " was pulled with other weights than decided"));
      }
    }
  }

  World world_;
  const v1::JobDefinition job_;
  std::vector<std::unique_ptr<ShardNode>> shards_;
  std::vector<std::unique_ptr<CoordinatorNode>> coordinators_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::unique_ptr<AdminNode> admin_;
  int takeovers_under_faults_ = 0;
};

}  // namespace

ClusterResult RunCluster(const ClusterOptions& options) { return Cluster(options).Run(); }

}  // namespace kaon::simulation
