#include "client/train/local_cluster.h"

#include <glog/logging.h>

#include <utility>

#include "absl/time/time.h"
#include "kernels/steady_clock.h"

namespace kaon::train {

class LocalCluster::Session : public TrainingSession {
 public:
  Session(LocalCluster& cluster, int rank) : cluster_(cluster), rank_(rank) {}

  absl::StatusOr<uint64_t> Start(const std::vector<std::vector<float>>&) override {
    return uint64_t{0};
  }

  absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) override {
    const absl::Time begin = SteadyNow();
    StepOutcome outcome;
    outcome.record = cluster_.Exchange(rank_, contribution);
    outcome.decide_seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
    transferred_.pushed += contribution.gradients->num_bytes();
    return outcome;
  }

  absl::Status Pull(uint64_t step, TensorBuffers* weights) override {
    CHECK_EQ(step, cluster_.CopyWeights(weights));
    transferred_.pulled += weights->num_bytes();
    return absl::OkStatus();
  }

  double loss_scale() const override { return cluster_.loss_scale(); }

  TransferredBytes transferred() const override { return transferred_; }

 private:
  LocalCluster& cluster_;
  const int rank_;
  TransferredBytes transferred_;
};

LocalCluster::LocalCluster(LocalOptimizer optimizer, int world_size)
    : optimizer_(std::move(optimizer)), contributions_(world_size), missing_ranks_(world_size) {}

std::unique_ptr<TrainingSession> LocalCluster::MakeSession(int rank) {
  return std::make_unique<Session>(*this, rank);
}

std::vector<uint64_t> LocalCluster::newton_schulz_calls() const {
  MutexLock lock(mu_);
  return optimizer_.newton_schulz_calls();
}

kaon::StepRecord LocalCluster::Exchange(int rank, const StepContribution& contribution) {
  MutexLock lock(mu_);
  contributions_[rank] = contribution;
  if (--missing_ranks_ == 0) {
    std::vector<StepContribution> taken;
    for (const StepContribution& each : contributions_) {
      if (each.takes_part) taken.push_back(each);
    }
    record_ = optimizer_.Step(taken);
    missing_ranks_ = static_cast<int>(contributions_.size());
    decided_.NotifyAll();
  } else {
    while (optimizer_.step() < contribution.step) decided_.Wait(mu_);
  }
  // `record_` stays until this rank brings its contribution to the next step.
  return record_;
}

double LocalCluster::loss_scale() const {
  MutexLock lock(mu_);
  return optimizer_.loss_scale();
}

uint64_t LocalCluster::CopyWeights(TensorBuffers* weights) const {
  MutexLock lock(mu_);
  Encode(optimizer_.weights(), weights);
  return optimizer_.step();
}

}  // namespace kaon::train
