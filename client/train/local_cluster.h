// Joins the workers of `kaon-train --local`: runs one step when every rank has brought its
// contribution. Shared by the threads of all ranks. Each thread owns its session, which must not
// outlive the cluster.
#ifndef KAON_CLIENT_TRAIN_LOCAL_CLUSTER_H_
#define KAON_CLIENT_TRAIN_LOCAL_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client/train/local_optimizer.h"
#include "client/train/training_session.h"
#include "kernels/mutex.h"

namespace kaon::train {

class LocalCluster {
 public:
  LocalCluster(LocalOptimizer optimizer, int world_size);

  // Returns the session of one rank, 0 .. world_size - 1.
  std::unique_ptr<TrainingSession> MakeSession(int rank);

  // Call it after the last step.
  std::vector<uint64_t> newton_schulz_calls() const;

 private:
  class Session;

  kaon::StepRecord Exchange(int rank, const StepContribution& contribution);
  double loss_scale() const;
  uint64_t CopyWeights(TensorBuffers* weights) const;

  mutable Mutex mu_;
  CondVar decided_;
  LocalOptimizer optimizer_ ABSL_GUARDED_BY(mu_);
  std::vector<StepContribution> contributions_ ABSL_GUARDED_BY(mu_);
  int missing_ranks_ ABSL_GUARDED_BY(mu_);
  kaon::StepRecord record_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_LOCAL_CLUSTER_H_
