// One open step of one worker, or the loading of the initial weights: takes the caller's tensors,
// drives them to the shards, and says when the decision is there and the tensors are the caller's
// again. Shared by the public Step and the library's threads; thread-safe.
#ifndef KAON_CLIENT_STEP_OPERATION_H_
#define KAON_CLIENT_STEP_OPERATION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/job_context.h"
#include "client/kaon/client.h"
#include "client/step_pusher.h"
#include "client/worker_driver.h"
#include "kernels/mutex.h"

namespace kaon::client {

class StepOperation : public std::enable_shared_from_this<StepOperation> {
 public:
  using Outcome = absl::StatusOr<v1::StepRecord>;

  struct Options {
    std::shared_ptr<const JobContext> job;
    std::shared_ptr<WorkerDriver> driver;
    StepShare share;
    // Every parameter takes part and must be fp32, frozen ones included: the initial weights.
    bool load_weights = false;
    // Once, on the loop, when the step is over and the caller's memory is free, before the result
    // of Finish is set.
    std::function<void(const Outcome&)> on_closed;
  };

  // FAILED_PRECONDITION after the client's Shutdown.
  static absl::StatusOr<std::shared_ptr<StepOperation>> Start(Options options);

  explicit StepOperation(Options options);

  // As Step::Push; errors of the arguments are set at once.
  Future<Done> Push(uint32_t parameter_id, const TensorView& tensor, uint32_t micro_batch)
      ABSL_LOCKS_EXCLUDED(mu_);

  // INVALID_ARGUMENT, and the step stays open, when a contribution is neither there nor listed as
  // missing; FAILED_PRECONDITION if finished before. Otherwise `done` is called once, on the loop
  // or from here, when the step is closed.
  absl::Status Finish(const FinishOptions& options, std::function<void(const Outcome&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the step with `status` unless it is over.
  void Stop(const absl::Status& status);

  // Stop, then waits until the caller's memory is free.
  void StopAndWait(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  bool finished() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Contributions that every parameter taking part must have.
  uint32_t micro_batches() const;
  bool TakesPart(uint32_t parameter_id) const;
  absl::Status CheckTensor(uint32_t parameter_id, const TensorView& tensor) const;
  absl::Status CheckCompleteLocked(const std::vector<bool>& missing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<bool>> MissingParameters(const FinishOptions& options) const;
  std::vector<v1::PushFinish> FinishByShard(const std::vector<bool>& missing,
                                            const FinishOptions& options) const;

  // Ends the step with DEADLINE_EXCEEDED, "step 1 was not `what` within", unless it is over or this
  // is called again before.
  void StartDeadline(const std::string& what) ABSL_LOCKS_EXCLUDED(mu_);

  // On the loop.
  void Begin();
  void OnOver(const Outcome& outcome);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::shared_ptr<StepPusher> pusher_;
  uint64_t operation_ = 0;

  mutable Mutex mu_;
  // Of num_queueing_ and closed_.
  CondVar changed_;
  // By parameter id: contributions pushed so far.
  std::vector<uint32_t> num_pushed_ ABSL_GUARDED_BY(mu_);
  // Calls of Push that have not queued their contribution yet.
  int num_queueing_ ABSL_GUARDED_BY(mu_) = 0;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void(const Outcome&)> done_ ABSL_GUARDED_BY(mu_);
  std::optional<EventLoop::Timer> deadline_ ABSL_GUARDED_BY(mu_);

  // Written on the loop before closed_ is set, read after.
  std::optional<Outcome> outcome_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_STEP_OPERATION_H_
