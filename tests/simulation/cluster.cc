#include "tests/simulation/cluster.h"

#include <glog/logging.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/model.h"
#include "tests/simulation/nodes/admin_node.h"
#include "tests/simulation/nodes/checkpoint_node.h"
#include "tests/simulation/nodes/coordinator_node.h"
#include "tests/simulation/nodes/shard_node.h"
#include "tests/simulation/nodes/worker_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

namespace {

// Interval at which an operator checks whether the job has stopped, and the share of checks that
// leave the restart to the checkpoint keeper.
constexpr absl::Duration kOperatorLooks = absl::Milliseconds(500);
constexpr double kLeftToTheKeeper = 0.8;
// Faults before the one at which a seeded bug ends the process: the trace is long by then.
constexpr int kFaultsBeforeDeath = 10;
// Share of the decisions at which every disk is read.
constexpr double kDisksRead = 0.05;
// Interval at which the cluster checks whether a worker can begin to hold steps, or can end it.
constexpr absl::Duration kHoldLooks = absl::Milliseconds(100);
// Share of the holders that join anew without end.
constexpr double kHoldersThatRejoin = 0.5;
// A worker holds steps until it was given up once, or as often as this.
constexpr uint64_t kMostHeldOut = 4;

v1::JobDefinition JobOf(const ClusterOptions& options) {
  v1::JobDefinition job = TinyJob(options.num_workers);
  if (options.nvme) {
    for (v1::ParameterGroup& group : *job.mutable_groups()) group.set_tier(v1::TIER_NVME);
  }
  if (!options.shrink && !options.fail) return job;
  job.set_worker_loss(options.shrink ? v1::WORKER_LOSS_POLICY_SHRINK : v1::WORKER_LOSS_POLICY_FAIL);
  job.set_worker_loss_seconds(1);
  if (options.step_deadline) job.set_step_seconds(2);
  return job;
}

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options) : world_(options), job_(JobOf(options)) {
    std::vector<ShardNode*> shards;
    for (int i = 0; i < options.num_shards; ++i) {
      shards_.push_back(std::make_unique<ShardNode>(world_, i));
      shards.push_back(shards_.back().get());
    }
    world_.set_invariants(std::make_unique<Invariants>(InvariantsOf()));
    std::vector<CoordinatorNode*> coordinators;
    for (int i = 0; i < options.num_coordinators; ++i) {
      coordinators_.push_back(std::make_unique<CoordinatorNode>(world_, i, shards));
      coordinators.push_back(coordinators_.back().get());
    }
    admin_ = std::make_unique<AdminNode>(world_, coordinators, shards);
    keeper_ = std::make_unique<CheckpointNode>(world_, coordinators, shards);
    for (int i = 0; i < options.num_workers; ++i) {
      workers_.push_back(std::make_unique<WorkerNode>(world_, i, job_, coordinators, shards));
    }
  }

  ClusterResult Run() {
    for (auto& shard : shards_) shard->Start();
    for (auto& coordinator : coordinators_) coordinator->Start();
    for (auto& worker : workers_) worker->Start();
    admin_->Start();
    keeper_->Start();
    const absl::Time faults_end = world_.now() + world_.options().fault_phase;
    ScheduleFault(faults_end);
    world_.queue().At(faults_end, [this] { Heal(); });
    if (world_.options().fail) LookForLoss();
    if (world_.options().holder) {
      const absl::Duration after = world_.Between(absl::Milliseconds(300), absl::Seconds(2));
      world_.queue().After(after, [this] { Hold(); });
    }
    const absl::Time end = faults_end + world_.options().liveness_limit;
    while (world_.invariants().violation().empty() && !Finished()) {
      if (!world_.queue().RunOne() || world_.now() > end) {
        world_.invariants().Violated(absl::StrCat("no progress: ", Progress()));
      }
    }
    // "after faults stop, bounded takeovers and progress": a frozen coordinator may wake once more,
    // then one holder stays. Rule 7: "Two may be alive for ever and the job still progresses." A
    // coordinator that is restarted may take over, and wake others, once more.
    const int takeovers = world_.result().takeovers - takeovers_under_faults_;
    const int restarts = world_.result().loss_restarts - restarts_under_faults_;
    if (!world_.faulty() && takeovers > 2 * (world_.options().num_coordinators + restarts) + 2) {
      world_.invariants().Violated(absl::StrCat(takeovers, " takeovers after faults had stopped"));
    }
    if (world_.invariants().violation().empty()) CheckHistory();
    CountMembers();
    ClusterResult& result = world_.result();
    result.violation = world_.invariants().violation();
    result.num_events = world_.queue().num_run();
    uint64_t newest_step = 0;
    for (const auto& [key, record] : world_.invariants().records()) {
      result.group_changes += record.plan().has_group_change();
      result.restores += record.plan().has_restore();
      result.deletions += record.plan().has_job_deletion();
      if (record.plan().has_job_deletion()) newest_step = 0;
      if (record.plan().has_restore()) newest_step = record.plan().restore().step();
      if (record.plan().has_rollback()) {
        ++result.rollbacks;
        result.steps_lost += newest_step - record.plan().rollback().target().step();
        newest_step = record.plan().rollback().target().step();
      }
      if (!record.plan().has_step()) continue;
      newest_step = record.plan().step().step();
      result.applied_step = std::max(result.applied_step, record.plan().step().step());
      result.skipped_steps += record.decision().outcome() == v1::OUTCOME_SKIP;
    }
    return result;
  }

 private:
  Invariants::Cluster InvariantsOf() {
    Invariants::Cluster cluster;
    cluster.num_shards = world_.options().num_shards;
    cluster.job = job_;
    cluster.interval_steps = world_.options().interval_steps;
    cluster.machine_of = [this](int shard) { return shards_[shard]->machine(); };
    if (!world_.options().durable) return cluster;
    cluster.disk_of = [this](int shard) { return shards_[shard]->ReadDurable(); };
    cluster.history_of = [this](int shard) { return shards_[shard]->History(); };
    cluster.draw_check = [this] {
      if (!world_.Chance(kDisksRead)) return false;
      ++world_.result().disks_checked;
      return true;
    };
    return cluster;
  }

  bool Finished() const {
    const uint64_t last_step = world_.last_step();
    return world_.last_step_is_known() && admin_->finished() && keeper_->finished() &&
           std::all_of(workers_.begin(), workers_.end(),
                       [last_step](const auto& worker) {
                         return worker->gone() || worker->finished_step() >= last_step;
                       }) &&
           std::all_of(shards_.begin(), shards_.end(), [last_step](const auto& shard) {
             return shard->alive() && shard->machine()->applied_step() >= last_step;
           });
  }

  std::string Progress() const {
    std::string text;
    for (const auto& shard : shards_) {
      if (!shard->alive()) {
        absl::StrAppend(&text, "shard dead; ");
        continue;
      }
      absl::StrAppend(&text, "shard at position ", shard->machine()->applied_position(), "; ");
    }
    for (const auto& worker : workers_) {
      absl::StrAppend(&text, "worker finished step ", worker->finished_step(), "; ");
    }
    if (!admin_->finished()) absl::StrAppend(&text, "the admin waits; ");
    if (!keeper_->finished()) absl::StrAppend(&text, "who keeps checkpoints waits");
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

  absl::Duration Downtime() {
    return world_.Between(absl::Milliseconds(10), absl::Milliseconds(1500));
  }

  void Fault() {
    ++world_.result().faults;
    if (world_.options().bug != SeededBug::kNone && ShowBug()) return;
    if (world_.options().durable && world_.Chance(world_.options().shard_faults)) {
      return ShardFault(*shards_[world_.Below(shards_.size())]);
    }
    const absl::Duration downtime = Downtime();
    switch (world_.Below(4)) {
      case 0:
        return KillCoordinator(*coordinators_[world_.Below(coordinators_.size())], downtime);
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
        if (world_.Chance(0.4)) return LoseWorker(node, downtime);
        // Most of the time nothing of it is under way; and it may be back before its pushes end.
        return node.AtNextPush([this, &node, downtime] {
          if (!world_.faulty()) return;
          if (world_.Chance(0.3)) return node.GiveUp();
          world_.Chance(0.5) ? KillWorker(node, downtime / 20) : LoseWorker(node, downtime);
        });
      }
    }
  }

  // False if the bug is not about this fault.
  bool ShowBug() {
    const bool dies = world_.result().faults > kFaultsBeforeDeath;
    switch (world_.options().bug) {
      case SeededBug::kForgetfulShard:
        shards_[world_.Below(shards_.size())]->Forget();
        return true;
      case SeededBug::kFailedCheck:
        CHECK(!dies) << "a seeded bug";
        return false;
      case SeededBug::kSegmentationFault:
        if (dies) std::raise(SIGSEGV);
        return false;
      case SeededBug::kLostShard:
        shards_[0]->Kill(absl::InfiniteDuration());
        return false;
      default:
        return false;
    }
  }

  void LoseWorker(WorkerNode& node, absl::Duration downtime) {
    // Mostly for longer than it is waited for.
    if (world_.options().fail) return KillWorker(node, downtime * 2);
    if (!world_.options().shrink) return KillWorker(node, downtime);
    if (!OthersTrain(node) || !WeightsLoaded() || !node.alive() || !world_.Chance(0.2)) {
      // Often for longer than it is waited for.
      return KillWorker(node, downtime * 3);
    }
    ++world_.result().worker_kills;
    ++world_.result().workers_gone;
    node.KillForGood();
  }

  // Only rank 0 can load the weights.
  bool WeightsLoaded() const {
    return shards_[0]->alive() && shards_[0]->machine()->weights_loaded();
  }

  bool OthersTrain(const WorkerNode& node) const {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      const WorkerNode& other = *workers_[rank];
      if (&other != &node && !other.gone() && world_.holder() != rank) return true;
    }
    return false;
  }

  // Makes some worker hold steps, whether it is restarted or not.
  void Hold() {
    const auto rank = static_cast<uint32_t>(world_.Below(workers_.size()));
    WorkerNode& node = *workers_[rank];
    if (node.gone() || !OthersTrain(node) || !WeightsLoaded()) {
      return world_.queue().After(kHoldLooks, [this] { Hold(); });
    }
    world_.Trace(absl::StrCat("w", rank, " holds steps"));
    world_.set_holder(rank);
    if (world_.Chance(kHoldersThatRejoin)) {
      RejoinEach(world_.Between(absl::Milliseconds(300), absl::Milliseconds(1500)));
    }
    EndHold(1 + static_cast<int>(world_.Below(kMostHeldOut)));
  }

  void RejoinEach(absl::Duration interval) {
    if (!world_.holder().has_value()) return;
    workers_[*world_.holder()]->GiveUp();
    world_.queue().After(interval, [this, interval] { RejoinEach(interval); });
  }

  // Ends it once the worker was given up so often. One that is never given up holds for ever.
  void EndHold(int held_out) {
    if (world_.result().held_out < held_out) {
      return world_.queue().After(kHoldLooks, [this, held_out] { EndHold(held_out); });
    }
    WorkerNode& node = *workers_[*world_.holder()];
    world_.Trace(absl::StrCat("w", *world_.holder(), " holds no more"));
    world_.set_holder(std::nullopt);
    // Shards wait for pushes that it has not begun.
    node.GiveUp();
  }

  // Restarts the coordinator, as an operator does who sees that the job has stopped.
  void LookForLoss() {
    for (auto& node : coordinators_) {
      if (!node->alive() || !node->stopped_by_loss()) continue;
      if (!keeper_->finished() && world_.Chance(kLeftToTheKeeper)) continue;
      ++world_.result().loss_restarts;
      KillCoordinator(*node, Downtime());
    }
    world_.queue().After(kOperatorLooks, [this] { LookForLoss(); });
  }

  void CountMembers() {
    std::vector<bool> was_out(workers_.size());
    for (const auto& [key, record] : world_.invariants().records()) {
      if (record.plan().step().kind() != v1::STEP_KIND_TRAIN) continue;
      std::vector<bool> out(workers_.size(), true);
      for (const v1::Member& member : record.plan().step().members()) {
        out[member.rank()] = false;
        world_.result().returns += was_out[member.rank()];
      }
      const bool shrunk = std::count(out.begin(), out.end(), true) > 0;
      world_.result().shrunk_steps += shrunk;
      if (shrunk && !world_.options().shrink) {
        world_.invariants().Violated(
            absl::StrCat("step ", record.plan().step().step(), " was decided without some worker"));
      }
      was_out = out;
    }
  }

  void ShardFault(ShardNode& shard) {
    if (world_.options().checkpoints && world_.Chance(0.1)) return FillCheckpoints();
    const uint64_t kind = world_.Below(8);
    if (kind == 0 && world_.Chance(0.5)) return FillDiskUnderAReopenedRound(shard);
    if (kind == 0) return shard.FillDisk(Downtime());
    if (kind == 1) return shard.BreakDisk();
    const auto die = [this, &shard, kind] {
      if (kind < 4) return shard.Kill(Downtime());
      if (kind < 7) return shard.CutPower(Downtime());
      Blackout();
    };
    // Most of the time there is nothing unsynced to lose.
    if (world_.Chance(0.3)) return die();
    shard.AtNextAppend(die);
  }

  // There is hardly any room for checkpoints for a while.
  void FillCheckpoints() {
    world_.Trace("the directory of checkpoints is full");
    world_.checkpoints().SetFreeBytes(world_.Below(6000));
    world_.queue().After(Downtime(), [this] { world_.checkpoints().SetUnbounded(); });
  }

  // A vote waits for room while a worker returns with another gradient. Then the journal that was
  // written is read back.
  void FillDiskUnderAReopenedRound(ShardNode& shard) {
    const absl::Duration full = world_.Between(absl::Milliseconds(300), absl::Milliseconds(1200));
    shard.FillDisk(full);
    WorkerNode& worker = *workers_[world_.Below(workers_.size())];
    const absl::Duration restart = world_.Between(absl::Milliseconds(20), absl::Milliseconds(200));
    world_.queue().After(restart, [this, &worker] {
      KillWorker(worker, world_.Between(absl::Milliseconds(10), absl::Milliseconds(60)));
    });
    world_.queue().After(full + world_.Between(absl::Milliseconds(50), absl::Milliseconds(500)),
                         [this, &shard] {
                           if (world_.faulty()) shard.Kill(Downtime());
                         });
  }

  // The power of the whole cluster is cut.
  void Blackout() {
    ++world_.result().blackouts;
    for (auto& shard : shards_) shard->CutPower(Downtime());
    world_.checkpoints().CutPower();
    for (auto& coordinator : coordinators_) KillCoordinator(*coordinator, Downtime());
    // Workers may be elsewhere.
    if (world_.Chance(0.5)) return;
    for (auto& worker : workers_) KillWorker(*worker, Downtime());
  }

  void KillCoordinator(CoordinatorNode& node, absl::Duration downtime) {
    if (!node.alive()) return;
    ++world_.result().coordinator_kills;
    node.Kill();
    world_.queue().After(downtime, [&node] { node.Start(); });
  }

  void KillWorker(WorkerNode& node, absl::Duration downtime) {
    if (!node.alive()) return;
    ++world_.result().worker_kills;
    node.Kill();
    world_.queue().After(downtime, [&node] {
      if (!node.alive()) node.Start();
    });
  }

  void Heal() {
    world_.Trace("faults stop");
    world_.StopFaults();
    ++world_.result().healed;
    takeovers_under_faults_ = world_.result().takeovers;
    restarts_under_faults_ = world_.result().loss_restarts;
  }

  // Reads the final weights of every shard as clients read them.
  void CheckHistory() {
    for (auto& shard : shards_) {
      const shard::ShardMachine& machine = *shard->machine();
      for (const v1::ParameterPlacement& home : machine.registration()->placement().parameters()) {
        if (home.shard() != machine.shard()) continue;
        Operation operation;
        operation.kind = Operation::Kind::kPull;
        operation.called = world_.now();
        operation.timeline = machine.timeline();
        operation.step = machine.applied_step();
        operation.parameter_id = home.parameter_id();
        operation.weights = shard->Weights(home.parameter_id());
        const History::Id id = world_.history().Call(std::move(operation));
        world_.history().Return(id, Operation::Outcome::kDone, world_.now());
      }
    }
    keeper_->CheckAll();
    const std::deque<Operation>& operations = world_.history().operations();
    world_.result().operations = operations.size();
    const std::string wrong = Contradiction(job_, world_.invariants().records(), operations);
    if (!wrong.empty()) world_.invariants().Violated(wrong);
  }

  World world_;
  const v1::JobDefinition job_;
  std::vector<std::unique_ptr<ShardNode>> shards_;
  std::vector<std::unique_ptr<CoordinatorNode>> coordinators_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::unique_ptr<AdminNode> admin_;
  std::unique_ptr<CheckpointNode> keeper_;
  int takeovers_under_faults_ = 0;
  int restarts_under_faults_ = 0;
};

}  // namespace

ClusterResult RunCluster(const ClusterOptions& options) { return Cluster(options).Run(); }

}  // namespace kaon::simulation
