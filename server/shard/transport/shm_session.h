// One worker's session over shared memory, with one push or pull at a time. Messages arrive through
// the rings of a ShmLink and go to the same PushIntake and PullReader as those of gRPC. Each
// message is copied out of the ring once, before it is parsed, because the worker may write there
// at any time. Owned by ShmEndpoint and by pending callbacks. Run has its own thread; Stop and the
// callbacks of accumulator and publisher come from any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_SHM_SESSION_H_
#define KAON_SERVER_SHARD_TRANSPORT_SHM_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/mutex.h"
#include "proto/identity.h"
#include "proto/shm_link.h"
#include "proto/shm_ring.h"
#include "server/monitor/event_counts.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/gradients/push_intake.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/pull_reader.h"

namespace kaon::shard {

// Objects that serve the calls. All outlive the sessions.
struct ShmBackends {
  GradientAccumulator* accumulator = nullptr;
  ParameterPublisher* publisher = nullptr;
  monitor::EventCounts* counts = nullptr;
};

class ShmSession : public std::enable_shared_from_this<ShmSession> {
 public:
  // Acts on behalf of `peer`. A session without a call for `idle_limit` ends.
  ShmSession(const ShmBackends& backends, proto::Identity peer,
             std::unique_ptr<proto::ShmLink> link, absl::Duration idle_limit);

  // Serves until the worker is gone, breaks the protocol or is idle too long, or until Stop.
  void Run();
  void Stop();

 private:
  // Set by callbacks of call `number`; processed by Run.
  struct Pending {
    uint32_t number = 0;
    uint64_t credit_bytes = 0;
    std::optional<absl::Status> ended;
    bool readable = false;
  };

  // Does one step of each kind that is possible now; returns false if none was. Returns
  // INVALID_ARGUMENT for an error that ends the session.
  absl::StatusOr<bool> Advance();
  absl::StatusOr<bool> TakeRecord();
  absl::Status Begin(const proto::RingReader::Record& record);
  void TakePush(absl::Span<const std::byte> message);
  void OpenPull(absl::Span<const std::byte> message);
  absl::StatusOr<bool> WriteChunks();
  // Writes the pending answers of the call.
  absl::StatusOr<bool> WriteAnswers();
  absl::StatusOr<bool> WriteResponse(const v1::PushResponse& response);
  PushCallbacks CallbacksOf(uint32_t number);
  void Note(uint32_t number, const std::function<void(Pending&)>& note) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the call. The worker is told, unless it ended the call itself.
  void EndCall(const absl::Status& status);

  const ShmBackends backends_;
  const proto::Identity peer_;
  const std::unique_ptr<proto::ShmLink> link_;
  const absl::Duration idle_limit_;

  // Used by Run's thread only.
  std::vector<std::byte> message_;
  // Number of the newest call.
  uint32_t number_ = 0;
  // At most one of the two is set.
  std::optional<PushIntake> push_;
  std::optional<PullReader> pull_;
  bool pull_waits_ = false;
  // Answers still to be written, in this order.
  std::optional<v1::PushOpened> opened_;
  bool finished_ = false;
  std::optional<absl::Status> end_;

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Pending pending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHM_SESSION_H_
