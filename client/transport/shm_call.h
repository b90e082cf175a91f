// A push or pull over a session in shared memory, as the thread that carries it out sees it. Shared
// by its caller and its ShmLane; Run, UseNetwork and End are called by the lane, one after the
// other, the rest from any thread.
#ifndef KAON_CLIENT_TRANSPORT_SHM_CALL_H_
#define KAON_CLIENT_TRANSPORT_SHM_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kernels/mutex.h"
#include "proto/shm_link.h"

namespace kaon::client {

class ShmCall {
 public:
  ShmCall(std::shared_ptr<CallTracker> tracker, std::shared_ptr<TransferCounters> counters)
      : token_(std::move(tracker)), counters_(std::move(counters)) {}
  virtual ~ShmCall() = default;

  // Carries the call out as the session's call `number`; returns when it is over, with an error if
  // the session cannot be used any more.
  absl::Status Run(proto::ShmLink& link, uint32_t number) ABSL_LOCKS_EXCLUDED(mu_);
  // There is no session: `network` is to carry it out.
  virtual void UseNetwork(ShardChannel& network) = 0;
  // There is no session and the network is not wanted: End is to say so.
  void Fail(const absl::Status& status) { Stop(status); }
  // Tells the caller how it went. Last.
  virtual void End() = 0;

 protected:
  // Makes Run look again.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelRun() ABSL_LOCKS_EXCLUDED(mu_);

  // Of Run. Writes what begins the call; false if there is no room now.
  virtual absl::StatusOr<bool> Begin(proto::ShmLink& link, uint32_t number) = 0;
  // Takes a record of this call. Its body is gone afterwards.
  virtual void Take(const proto::RingReader::Record& record) = 0;
  // Writes the next record; false if there is none, or no room for it.
  virtual absl::StatusOr<bool> Write(proto::ShmLink& link, uint32_t number) = 0;
  // How long nothing need be done, when the shard is silent.
  virtual absl::Duration Patience() const { return absl::InfiniteDuration(); }

  // The result, unless there is one. What the shard says it need not be told.
  void Stop(const absl::Status& status);
  void StopTold(const absl::Status& status);
  bool over() const { return result_.has_value(); }
  // Of a call that is over.
  const absl::Status& result() const { return *result_; }
  // How the shard ended the call, if that is what the record says.
  static std::optional<absl::Status> EndOf(const proto::RingReader::Record& record);

  // Shared with the whole client.
  TransferCounters& counters() const { return *counters_; }
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<bool> Advance(proto::ShmLink& link, uint32_t number, bool* begun);
  // Tells the shard that nothing more is wanted.
  absl::Status Abandon(proto::ShmLink& link, uint32_t number);
  absl::Status Carry(proto::ShmLink& link, uint32_t number);

  // First: goes last.
  const CallTracker::Token token_;
  const std::shared_ptr<TransferCounters> counters_;
  // Of the lane's thread.
  bool told_ = false;
  std::optional<absl::Status> result_;

  mutable Mutex mu_;
  // While Run runs.
  proto::ShmLink* link_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_CALL_H_
