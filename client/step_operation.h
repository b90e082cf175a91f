// Runs one open step of one worker, or the loading of the initial weights. Takes the caller's
// tensors, sends them to the shards, and reports when the step is decided and the tensors are free
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
#include "absl/time/time.h"
#include "client/job_context.h"
#include "client/kaon/step.h"
#include "client/step_pusher.h"
#include "client/wait_log.h"
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
    // Loads the initial weights: every parameter takes part, also frozen ones, and must be fp32.
    bool load_weights = false;
    // Called once, on the loop, when the step is over and the caller's memory is free. Finish gets
    // its result afterwards.
    std::function<void(const Outcome&)> on_closed;
  };

  // Returns FAILED_PRECONDITION after the client's Shutdown.
  static absl::StatusOr<std::shared_ptr<StepOperation>> Start(Options options);

  explicit StepOperation(Options options);

  // Does the work of Step::Push. An invalid argument fails the future at once.
  Future<Done> Push(uint32_t parameter_id, const TensorView& tensor, uint32_t micro_batch)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns INVALID_ARGUMENT if a contribution is neither pushed nor listed as missing; the step
  // stays open. Returns FAILED_PRECONDITION if the step was finished before. Otherwise calls `done`
  // once when the step is closed, on the loop or on the calling thread.
  absl::Status Finish(const FinishOptions& options, std::function<void(const Outcome&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the step with `status` unless it is over.
  void Stop(const absl::Status& status);

  // Calls Stop, then blocks until the caller's memory is free. Do not call it on the loop.
  void StopAndWait(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  bool finished() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Number of contributions that every parameter taking part must have.
  uint32_t micro_batches() const;
  bool TakesPart(uint32_t parameter_id) const;
  absl::Status CheckTensor(uint32_t parameter_id, const TensorView& tensor) const;
  absl::Status CheckCompleteLocked(const std::vector<bool>& missing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<bool>> MissingParameters(const FinishOptions& options) const;
  std::vector<v1::PushFinish> FinishByShard(const std::vector<bool>& missing,
                                            const FinishOptions& options) const;

  // Starts a deadline that ends the step with DEADLINE_EXCEEDED, "step 1 was not `what` within". A
  // later call replaces it; the end of the step cancels it.
  void StartDeadline(const std::string& what) ABSL_LOCKS_EXCLUDED(mu_);

  // Logs waits for Finish, and those for accepted pushes before it, until the end of the step.
  void StartLog() ABSL_LOCKS_EXCLUDED(mu_);

  // These five run on the loop.
  // Returns when the wait for Finish began, before Finish that for the oldest push that is not
  // accepted. InfiniteFuture if neither waits.
  absl::Time WaitsSince() const ABSL_LOCKS_EXCLUDED(mu_);
  std::string WaitsFor() const;
  void Begin();
  void OnOver(const Outcome& outcome);
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::shared_ptr<StepPusher> pusher_;
  uint64_t operation_ = 0;

  mutable Mutex mu_;
  // Signals changes of num_queueing_ and closed_.
  CondVar changed_;
  // Contributions pushed so far, by parameter id.
  std::vector<uint32_t> num_pushed_ ABSL_GUARDED_BY(mu_);
  // Calls of Push that have not queued their contribution yet.
  int num_queueing_ ABSL_GUARDED_BY(mu_) = 0;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void(const Outcome&)> done_ ABSL_GUARDED_BY(mu_);
  std::optional<EventLoop::Timer> deadline_ ABSL_GUARDED_BY(mu_);
  // Set by Finish unless the step is closed.
  std::optional<absl::Time> finish_time_ ABSL_GUARDED_BY(mu_);
  // Set until the step is closed.
  std::unique_ptr<WaitLog> log_ ABSL_GUARDED_BY(mu_);

  // Written on the loop before closed_ is set; read afterwards.
  std::optional<Outcome> outcome_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_STEP_OPERATION_H_
