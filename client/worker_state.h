// Holds one joined worker: its session, and which step is open. Shared by the public Worker and its
// steps; thread-safe.
#ifndef KAON_CLIENT_WORKER_STATE_H_
#define KAON_CLIENT_WORKER_STATE_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/job_context.h"
#include "client/kaon/worker.h"
#include "client/step_operation.h"
#include "client/worker_driver.h"
#include "kernels/mutex.h"

namespace kaon::client {

class WorkerState : public std::enable_shared_from_this<WorkerState> {
 public:
  // Joins the job within ClientOptions::call_deadline. Do not call it on the loop.
  static absl::StatusOr<std::shared_ptr<WorkerState>> Join(std::shared_ptr<const JobContext> job,
                                                           uint32_t rank);

  WorkerState(std::shared_ptr<const JobContext> job, uint32_t rank);

  // Does the work of Worker::Begin. May ask the coordinator for the applied step, so do not call it
  // on the loop.
  absl::StatusOr<std::shared_ptr<StepOperation>> Begin(const BeginOptions& options)
      ABSL_LOCKS_EXCLUDED(mu_);

  Future<Done> LoadWeights(const std::vector<TensorView>& weights) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the value of Worker::loss_scale.
  double loss_scale() const ABSL_LOCKS_EXCLUDED(mu_);

  uint32_t rank() const { return driver_->rank(); }
  const JobContext& job() const { return *job_; }
  const std::shared_ptr<const JobContext>& shared_job() const { return job_; }

 private:
  absl::Status WaitForJoin();
  void Adopt(const Joined& joined) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckIsNext(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes this the worker's one open step and starts it.
  absl::StatusOr<std::shared_ptr<StepOperation>> Open(const StepShare& share, bool load_weights)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnClosed(const StepOperation::Outcome& outcome) ABSL_LOCKS_EXCLUDED(mu_);

  // Shared with the whole job.
  const std::shared_ptr<const JobContext> job_;
  // Shared with its own calls.
  const std::shared_ptr<WorkerDriver> driver_;

  mutable Mutex mu_;
  bool step_is_open_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t open_step_ ABSL_GUARDED_BY(mu_) = 0;
  // State of the job that this worker knows.
  uint64_t timeline_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t applied_step_ ABSL_GUARDED_BY(mu_) = 0;
  bool weights_loaded_ ABSL_GUARDED_BY(mu_) = false;
  double loss_scale_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WORKER_STATE_H_
