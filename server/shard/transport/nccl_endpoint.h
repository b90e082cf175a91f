// The shard's end of gradients and weights over NCCL. It has a communicator of two ranks for each
// worker and direction, with staging slots, and a thread that advances all of them. It posts a
// receive for each header that a push stream has accepted, checks the digest of what arrived, and
// hands the bytes over. It sends what a pull stream writes. Bytes stay on the device if the shard's
// backend computes there. It decides nothing about steps. Owned by ShardServer; any thread.
#ifndef KAON_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_H_
#define KAON_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_control.pb.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/shard_nccl.pb.h"
#include "kernels/mutex.h"
#include "kernels/nccl/abort_queue.h"
#include "kernels/nccl/device_link.h"
#include "kernels/nccl/link_session.h"
#include "kernels/region.h"
#include "proto/identity.h"
#include "proto/tensor_stream.h"

namespace kaon::shard {

// Sessions of one worker and direction: one that is in use, and one that is still being aborted.
inline constexpr uint32_t kMaxNcclSessionsOfRank = 2;

class NcclEndpoint {
 public:
  struct Options {
    // Sessions in use or being aborted. Each has slots * slot_bytes of device memory.
    uint32_t max_sessions = 128;
    // When all are in use, the session that has carried nothing for longest, and for this long at
    // least, ends.
    absl::Duration min_idle = absl::Minutes(1);
    uint32_t slots = 4;
    uint64_t slot_bytes = proto::kMaxChunkBytes;
    kernels::LinkSession::Options session;
    // Time for which a rank gets no session after two that it did not join. Each further one
    // doubles it, up to 1 hour; a session that it joins starts it anew.
    absl::Duration unjoined_delay = absl::Seconds(10);
    // Sessions of this process that nobody joined, before there are no others. NCCL keeps a thread
    // and a listening socket for each.
    uint32_t max_unjoined = 256;
    // Interval of looking at transfers under way: about the time that a slot of 1 MiB travels.
    absl::Duration tick = absl::Microseconds(50);
    // The backend computes on the slots, so payloads stay there.
    bool in_place = false;
  };

  // A payload that a push stream expects.
  struct Announced {
    v1::NcclTransfer transfer;
    // Parameter of the first chunk, for the digest.
    uint32_t parameter_id = 0;
    uint64_t bytes = 0;
  };
  // Worker at the other end.
  struct Sender {
    std::string job;
    uint32_t rank = 0;
  };
  // Takes a payload that has arrived, in host memory or in the backend's, valid during the call.
  // Called at most once, on the endpoint's thread, without a lock held.
  using Take = std::function<absl::Status(kernels::ConstRegion payload)>;
  using Write = absl::FunctionRef<absl::Status(kernels::Region to)>;
  // Called once, as Take and after it, when the slot is free. The status is Take's, OK for what has
  // left, or UNAVAILABLE: the digest differs, or the session is over.
  using Done = std::function<void(const absl::Status&)>;

  // Returns an endpoint over `link`, or else over the link of CUDA device `device` to `network`.
  // Null, with the reason in the log, if there is no such link; null if both are absent. The shard
  // computes in `memory_tier`.
  static std::unique_ptr<NcclEndpoint> Start(std::shared_ptr<kernels::DeviceLink> link,
                                             const std::string& network, int device,
                                             const std::string& memory_tier);

  // The abort of a communicator may share the link beyond the endpoint.
  NcclEndpoint(std::shared_ptr<kernels::DeviceLink> link, const Options& options);
  // Calls Stop.
  ~NcclEndpoint();

  // Makes a session and ends the worker's earlier one of that direction. PERMISSION_DENIED for
  // another worker's certificate, and for readers. RESOURCE_EXHAUSTED if all sessions are in use or
  // being aborted, the worker did not join earlier ones, or the device has no room. UNAVAILABLE
  // after Stop, or if NCCL fails.
  absl::StatusOr<v1::OpenNcclSessionResponse> Open(const proto::Identity& peer,
                                                   const v1::OpenNcclSessionRequest& request);
  // Posts the receive of an accepted header. UNAVAILABLE: the session is over, or another worker's.
  // INVALID_ARGUMENT: another sequence, or a size that no slot has. RESOURCE_EXHAUSTED: all slots
  // are in use. Neither `take` nor `done` is called after an error.
  absl::Status Receive(const Sender& sender, const Announced& announced, Take take, Done done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns OK if `worker` may pull over the session; otherwise UNAVAILABLE as of Receive.
  absl::Status CheckPulls(uint64_t session, const Sender& worker) const ABSL_LOCKS_EXCLUDED(mu_);
  // Sends `bytes` of weights to `to`, over its session for pulls, and returns what announces them.
  // Errors as of Receive and `write`, which runs meanwhile; `done` is not called after one.
  absl::StatusOr<v1::NcclTransfer> Send(const Sender& to, uint64_t session, uint32_t parameter_id,
                                        uint64_t bytes, Write write, Done done)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a session, because a call over it ended early: the ends may disagree about what is
  // under way. Does nothing if it has ended.
  void Fail(uint64_t session, const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all sessions and blocks until the thread has ended. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  uint32_t slots() const { return options_.slots; }
  // Returns what each worker of the job has sent, ordered by rank.
  std::vector<v1::NcclPair> Pairs(const std::string& job) const ABSL_LOCKS_EXCLUDED(pairs_mu_);
  // Number of sessions that are in use or being aborted.
  size_t num_sessions() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Slot {
    kernels::Region memory;
    bool used = false;
    Announced announced;
    // Null if the slot is sent.
    Take take;
    // Set while a transfer is under way.
    Done done;
  };
  // Shared with the abort that frees its memory.
  struct Session;
  // What to do once no lock is held.
  struct Work;
  // The sessions in a row that one rank has not joined.
  struct Unjoined {
    uint32_t sessions = 0;
    absl::Time refused_until = absl::InfinitePast();
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether anything is under way.
  bool AdvanceLocked(std::vector<Work>* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndTransfersLocked(Session& session, std::vector<Work>* work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(Work& work) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakePayload(const Work& work) ABSL_LOCKS_EXCLUDED(mu_);
  void FreeSlot(const Work& work) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes once that a session has ended before its worker joined.
  void NoteUnjoinedLocked(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLongestIdleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes Pairs tell of the worker of a session. Nothing else adds a pair.
  void NoteOpened(const Session& session) ABSL_LOCKS_EXCLUDED(pairs_mu_);
  void NoteState(const Session& session, const char* state) ABSL_LOCKS_EXCLUDED(pairs_mu_);
  // Changes what Pairs still tells of the worker of a session. Never waits for a device.
  void Note(const Session& session, const std::function<void(v1::NcclPair&)>& change)
      ABSL_LOCKS_EXCLUDED(pairs_mu_);
  // Returns null if the session is over.
  std::shared_ptr<Session> FindLocked(uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the session if `worker` may use it for pulls, or for pushes.
  absl::StatusOr<std::shared_ptr<Session>> UsableLocked(uint64_t number, const Sender& worker,
                                                        bool pulls) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a free slot. RESOURCE_EXHAUSTED if there is none, INVALID_ARGUMENT if it is too small.
  absl::StatusOr<size_t> FreeSlotLocked(const Session& session, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoomLocked(const v1::OpenNcclSessionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<kernels::DeviceLink> link_;
  const Options options_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_session_ ABSL_GUARDED_BY(mu_) = 1;
  std::list<std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
  // The key is job and rank. The map has at most max_unjoined entries.
  std::map<std::pair<std::string, uint32_t>, Unjoined> unjoined_ ABSL_GUARDED_BY(mu_);
  // Ids that nobody joined by.
  uint32_t num_unjoined_ ABSL_GUARDED_BY(mu_) = 0;

  // Taken after mu_, and for moments: shards describe themselves on their step thread.
  mutable Mutex pairs_mu_;
  // Ordered by job and rank.
  std::map<std::pair<std::string, uint32_t>, v1::NcclPair> pairs_ ABSL_GUARDED_BY(pairs_mu_);

  // Destroyed before the sessions that it aborts.
  kernels::AbortQueue aborts_;
  // Last member: it uses everything above.
  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_NCCL_ENDPOINT_H_
