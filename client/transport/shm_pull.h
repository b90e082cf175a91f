// Pulls over shared memory: checks chunks in the ring and copies them from there to the caller's
// memory. See ShmCall for its threads.
#ifndef KAON_CLIENT_TRANSPORT_SHM_PULL_H_
#define KAON_CLIENT_TRANSPORT_SHM_PULL_H_

#include <memory>

#include "absl/time/time.h"
#include "client/transport/call_tracker.h"
#include "client/transport/pull_assembler.h"
#include "client/transport/shard_channel.h"
#include "client/transport/shm_call.h"
#include "client/transport/transfer_counters.h"

namespace kaon::client {

class ShmPull : public PullStream, public ShmCall {
 public:
  ShmPull(std::shared_ptr<CallTracker> tracker, std::shared_ptr<TransferCounters> counters,
          PullOptions options);

  void Cancel() override;

  void UseNetwork(ShardChannel& network) override;
  void End() override;

 private:
  absl::StatusOr<bool> Begin(proto::ShmLink& link, uint32_t number) override;
  void Take(const proto::RingReader::Record& record) override;
  absl::StatusOr<bool> Write(proto::ShmLink&, uint32_t) override { return false; }
  absl::Duration Patience() const override;

  absl::Status TakeChunks(absl::Span<const std::byte> message);

  PullOptions options_;
  const absl::Time deadline_;

  // Used on the lane's thread.
  PullAssembler assembler_;

  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The pull over the network if there is no session; shared with its transport.
  std::shared_ptr<PullStream> network_stream_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_PULL_H_
