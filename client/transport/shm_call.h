// Runs one push or pull over a session in shared memory. Shared by its caller and its ShmLane. The
// lane calls Run, UseNetwork and End, one after the other; the rest may be called on any thread.
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

  // Runs the call as the session's call `number` and returns when it is over. Returns an error if
  // the session can no longer be used.
  absl::Status Run(proto::ShmLink& link, uint32_t number) ABSL_LOCKS_EXCLUDED(mu_);
  // Hands the call to `network`, because there is no session.
  virtual void UseNetwork(ShardChannel& network) = 0;
  // Sets the error that End reports, because there is no session and the network is not wanted.
  void Fail(const absl::Status& status) { Stop(status); }
  // Reports the result to the caller. The lane calls it last.
  virtual void End() = 0;

 protected:
  // Makes Run check again for work.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelRun() ABSL_LOCKS_EXCLUDED(mu_);

  // Run calls these. Begin writes the record that starts the call; returns false if there is no
  // room now.
  virtual absl::StatusOr<bool> Begin(proto::ShmLink& link, uint32_t number) = 0;
  // Handles a record of this call. The record's body is not valid afterwards.
  virtual void Take(const proto::RingReader::Record& record) = 0;
  // Writes the next record. Returns false if there is none, or no room for it.
  virtual absl::StatusOr<bool> Write(proto::ShmLink& link, uint32_t number) = 0;
  // Returns how long Run may wait for the shard without doing anything.
  virtual absl::Duration Patience() const { return absl::InfiniteDuration(); }

  // Both set the result unless there is one. StopTold also notes that the shard knows the end, so
  // Run need not tell it.
  void Stop(const absl::Status& status);
  void StopTold(const absl::Status& status);
  bool over() const { return result_.has_value(); }
  // The call must be over.
  const absl::Status& result() const { return *result_; }
  // Returns the status with which the shard ended the call, if the record says so.
  static std::optional<absl::Status> EndOf(const proto::RingReader::Record& record);

  // Shared with the whole client.
  TransferCounters& counters() const { return *counters_; }
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<bool> Advance(proto::ShmLink& link, uint32_t number, bool* begun);
  // Tells the shard that the client wants no more of this call.
  absl::Status Abandon(proto::ShmLink& link, uint32_t number);
  absl::Status Carry(proto::ShmLink& link, uint32_t number);

  // First member: destroyed last.
  const CallTracker::Token token_;
  const std::shared_ptr<TransferCounters> counters_;
  // Used on the lane's thread.
  bool told_ = false;
  std::optional<absl::Status> result_;

  mutable Mutex mu_;
  // Set while Run runs.
  proto::ShmLink* link_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_CALL_H_
