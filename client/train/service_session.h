// A training session through Kaon servers: one Client, one rank, one open step. Owned by its
// worker's thread.
#ifndef KAON_CLIENT_TRAIN_SERVICE_SESSION_H_
#define KAON_CLIENT_TRAIN_SERVICE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/kaon/client.h"
#include "client/train/device_gradients.h"
#include "client/train/stop_gate.h"
#include "client/train/training_session.h"
#include "kernels/mutex.h"

namespace kaon::train {

struct ServiceSessionOptions {
  kaon::ClientOptions client;
  kaon::JobDefinition job;
  uint32_t rank = 0;
};

class ServiceSession : public TrainingSession {
 public:
  // Connects, registers the job or attaches to an equal one, and takes the rank. `gate` must
  // outlive the session.
  static absl::StatusOr<std::unique_ptr<ServiceSession>> Create(
      const ServiceSessionOptions& options, StopGate& gate);

  // Step of a rewind that the library reported.
  struct Rewind {
    Mutex mu;
    std::optional<uint64_t> step ABSL_GUARDED_BY(mu);
  };

  // Takes the parts that Create has made.
  ServiceSession(kaon::Client client, kaon::Job job, kaon::Worker worker, StopGate& gate,
                 std::shared_ptr<Rewind> rewind, std::unique_ptr<DeviceGradients> on_device)
      : gate_(gate),
        rewind_(std::move(rewind)),
        on_device_(std::move(on_device)),
        client_(std::move(client)),
        job_(std::move(job)),
        worker_(std::move(worker)) {}

  // Rank 0 loads the weights if the job has none; other ranks wait for them.
  absl::StatusOr<uint64_t> Start(const std::vector<std::vector<float>>& initial_weights) override;
  absl::StatusOr<StepOutcome> Exchange(const StepContribution& contribution) override;
  absl::Status Pull(uint64_t step, TensorBuffers* weights) override;
  double loss_scale() const override { return worker_.loss_scale(); }
  std::optional<uint64_t> TakeRewind() override;
  TransferredBytes transferred() const override;

 private:
  // Joins again after a rewind. The job may learn of the rewind before its worker does; the
  // worker's next step would then end as a step of the old timeline.
  absl::Status FollowRewind();
  // Waits like Get(). Cancels the operation if another worker failed, or some time after a stop was
  // requested.
  template <typename T>
  kaon::Result<T> Await(kaon::Future<T> future);
  // Does the same with `cancel`, for an operation that another one's cancellation ends: a push ends
  // with its step.
  template <typename T, typename Cancel>
  kaon::Result<T> Await(kaon::Future<T>&& future, const Cancel& cancel);

  StopGate& gate_;
  // Shared with the library's threads.
  const std::shared_ptr<Rewind> rewind_;
  // Null if tensors are in host memory. Outlives the pushes.
  const std::unique_ptr<DeviceGradients> on_device_;
  // The loop took a rewind that the worker has not followed.
  bool rewound_ = false;
  // The order matters: steps and jobs must be destroyed before their client.
  kaon::Client client_;
  kaon::Job job_;
  kaon::Worker worker_;
};

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_SERVICE_SESSION_H_
