// One worker's session over shared memory: one push or pull at a time, whose messages come through
// the rings of a ShmLink and go to the same PushIntake and PullReader as those of gRPC. Each
// message is copied out of the ring, once, before anything of it is looked at; the worker may write
// there at any time. Owned by ShmEndpoint beside callbacks that are under way; Run has a thread of
// its own, callbacks of accumulator and publisher and Stop come from any.
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

// What calls go to. All of it outlives the sessions.
struct ShmBackends {
  GradientAccumulator* accumulator = nullptr;
  ParameterPublisher* publisher = nullptr;
  monitor::EventCounts* counts = nullptr;
};

class ShmSession : public std::enable_shared_from_this<ShmSession> {
 public:
  // Acts as `peer`. A session without a call for `idle_limit` ends.
  ShmSession(const ShmBackends& backends, proto::Identity peer,
             std::unique_ptr<proto::ShmLink> link, absl::Duration idle_limit);

  // Serves until the worker is gone, does what no worker may, or is idle too long, or Stop.
  void Run();
  void Stop();

 private:
  // Said by callbacks of the call `number`, done by Run.
  struct Pending {
    uint32_t number = 0;
    uint64_t credit_bytes = 0;
    std::optional<absl::Status> ended;
    bool readable = false;
  };

  // One step of each kind that is possible now; false if there was none. INVALID_ARGUMENT for what
  // ends the session.
  absl::StatusOr<bool> Advance();
  absl::StatusOr<bool> TakeRecord();
  absl::Status Begin(const proto::RingReader::Record& record);
  void TakePush(absl::Span<const std::byte> message);
  void OpenPull(absl::Span<const std::byte> message);
  absl::StatusOr<bool> WriteChunks();
  // What is left to be said of the call.
  absl::StatusOr<bool> WriteAnswers();
  absl::StatusOr<bool> WriteResponse(const v1::PushResponse& response);
  PushCallbacks CallbacksOf(uint32_t number);
  void Note(uint32_t number, const std::function<void(Pending&)>& note) ABSL_LOCKS_EXCLUDED(mu_);
  // The call is over; the worker will be told, unless it is the one that ended it.
  void EndCall(const absl::Status& status);

  const ShmBackends backends_;
  const proto::Identity peer_;
  const std::unique_ptr<proto::ShmLink> link_;
  const absl::Duration idle_limit_;

  // Of Run's thread.
  std::vector<std::byte> message_;
  // Of the newest call.
  uint32_t number_ = 0;
  // At most one of them.
  std::optional<PushIntake> push_;
  std::optional<PullReader> pull_;
  bool pull_waits_ = false;
  // To be written, in this order.
  std::optional<v1::PushOpened> opened_;
  bool finished_ = false;
  std::optional<absl::Status> end_;

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Pending pending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHM_SESSION_H_
