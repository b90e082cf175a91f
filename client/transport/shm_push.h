// Pushes over shared memory: copies chunks from the caller's memory into the ring and computes
// their checksums during the copy. See ShmCall for its threads.
#ifndef KAON_CLIENT_TRANSPORT_SHM_PUSH_H_
#define KAON_CLIENT_TRANSPORT_SHM_PUSH_H_

#include <memory>

#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"
#include "client/transport/shm_call.h"
#include "client/transport/transfer_counters.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::client {

class ShmPush : public PushStream, public ShmCall {
 public:
  ShmPush(std::shared_ptr<CallTracker> tracker, std::shared_ptr<TransferCounters> counters,
          const v1::PushOpen& open, std::shared_ptr<PushSource> source);

  void Resume() override;
  void Cancel() override;

  void UseNetwork(ShardChannel& network) override;
  void End() override;

 private:
  absl::StatusOr<bool> Begin(proto::ShmLink& link, uint32_t number) override;
  void Take(const proto::RingReader::Record& record) override;
  absl::StatusOr<bool> Write(proto::ShmLink& link, uint32_t number) override;

  size_t WriteChunks(const LeasedChunks& leased, std::byte* to);
  void TakeResponse(const v1::PushResponse& response);

  const v1::PushOpen open_;
  std::shared_ptr<PushSource> source_;

  // Used on the lane's thread.
  bool opened_ = false;

  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The push over the network if there is no session; shared with its transport.
  std::shared_ptr<PushStream> network_stream_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_PUSH_H_
