// The worker's end of gradients or weights over NCCL, for one rank and one shard. It has one
// session at a time, the staging slots of the session, and a thread that opens and advances it. One
// push or pull at a time uses it. Owned by NcclShardChannel and its calls; any thread.
#ifndef KAON_CLIENT_TRANSPORT_NCCL_LANE_H_
#define KAON_CLIENT_TRANSPORT_NCCL_LANE_H_

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/push_queue.h"
#include "kaon/v1/shard_data.pb.h"
#include "kaon/v1/shard_nccl.pb.h"
#include "kernels/mutex.h"
#include "kernels/nccl/abort_queue.h"
#include "kernels/nccl/device_link.h"
#include "kernels/nccl/link_session.h"

namespace kaon::client {

// A push or pull that uses a lane. The lane calls it on its own thread, without a lock held.
class NcclLaneUser {
 public:
  // Numbers the users in the order of their construction.
  NcclLaneUser();
  virtual ~NcclLaneUser() = default;
  uint64_t number() const { return number_; }
  // Something changed: ask NcclLane::TakeTurn again.
  virtual void OnTurn() = 0;
  // The session that carried some of it has ended, with UNAVAILABLE.
  virtual void OnSessionEnded(const absl::Status& why) = 0;

 private:
  const uint64_t number_;
};

class NcclLane {
 public:
  struct Options {
    // Name of the shard and the rank, for logs.
    std::string name;
    // Asks the shard for a session; may take seconds.
    std::function<absl::StatusOr<v1::OpenNcclSessionResponse>()> open;
    // Both are shared with aborts that hang.
    std::shared_ptr<kernels::DeviceLink> link;
    std::shared_ptr<kernels::AbortQueue> aborts;
    kernels::LinkSession::Options session;
    // Time after a refusal or failure before a session is asked for again. Each further one doubles
    // it, up to 1 hour; a push that used a session and finished starts it anew.
    absl::Duration retry_after = absl::Seconds(10);
    // Time from the end of a session to OnSessionEnded. The shard may have ended it together with
    // the push, and its status says why.
    absl::Duration grace = absl::Milliseconds(500);
    // Interval of looking at transfers under way.
    absl::Duration tick = absl::Microseconds(50);
  };
  // The session that a pull has joined.
  struct Joined {
    uint64_t session = 0;
    // Receives that it can have under way.
    size_t slots = 0;
  };
  // Called on the lane's thread, without a lock held. The memory is the transfer's until it
  // returns. The lane calls the result, which may be null, once the transfer's slot is free.
  using Arrived = std::function<std::function<void()>(kernels::ConstRegion)>;

  enum class Turn {
    // Send will find a free slot.
    kNow,
    // OnTurn follows.
    kLater,
    // There is no session: `why` says why not.
    kNever,
  };

  explicit NcclLane(Options options);
  // Ends the session; its abort need not have returned.
  ~NcclLane();

  // Asks whether `user` may send now. Opens a session if there is none. Ends a session that an
  // earlier user has not released. kLater while a later user has the turn.
  Turn TakeTurn(const std::shared_ptr<NcclLaneUser>& user, absl::Status* why)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Calls OnTurn of `user` in a moment, for a push that awaits an event of its tensor. The lane
  // does not keep the event: it belongs to the trainer.
  void CallSoon(const std::shared_ptr<NcclLaneUser>& user) ABSL_LOCKS_EXCLUDED(mu_);
  // Copies the chunks, at most 1 MiB of the link's device, into a slot and sends them. The chunks'
  // memory is free when it returns. Call it after kNow. UNAVAILABLE: the session has ended, and
  // OnTurn or OnSessionEnded follows; or another push has replaced the user's, and nothing follows.
  absl::StatusOr<v1::NcclTransfer> Send(const NcclLaneUser* user,
                                        const std::vector<ChunkToSend>& chunks)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the session of a pull. Call it after kNow. UNAVAILABLE as of Send.
  absl::StatusOr<Joined> Join(const NcclLaneUser* user) ABSL_LOCKS_EXCLUDED(mu_);
  // Posts the receive of a transfer that the shard has announced. Calls `arrived` unless the
  // session ends before. UNAVAILABLE as of Send. INTERNAL: another transfer than the next one, no
  // free slot, or a size that no slot has.
  absl::Status Receive(const NcclLaneUser* user, const v1::NcclTransfer& announced, uint64_t bytes,
                       Arrived arrived) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether both ends have joined a session.
  bool has_session() const ABSL_LOCKS_EXCLUDED(mu_);
  // The push or pull is over. Unless it finished, the session that it used ends: the ends may
  // disagree about what is under way. So does the session of a pull that failed before it used it.
  // After UNAVAILABLE or DATA_LOSS of a used one, others use the network for a while. Does nothing
  // if another push has replaced it.
  void Release(const NcclLaneUser* user, const absl::Status& result) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Shared with the abort that frees its memory.
  struct Session;
  struct Arrival {
    std::shared_ptr<Session> session;
    size_t slot = 0;
    kernels::Region memory;
    Arrived arrived;
  };
  // What to tell the user once no lock is held.
  struct Told {
    std::shared_ptr<NcclLaneUser> user;
    absl::Status ended;
    std::vector<std::weak_ptr<NcclLaneUser>> soon;
    std::vector<Arrival> arrivals;

    bool nothing() const { return user == nullptr && soon.empty() && arrivals.empty(); }
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Open() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<Session>> NewSession();
  void HandOver(std::vector<Arrival>& arrivals) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether something is under way.
  bool AdvanceLocked(Told* told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends `session_` and notes why, for its user.
  void FailLocked(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets everything about a user's push.
  void ForgetUserLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Blocks until something may have changed.
  void WaitLocked(bool under_way) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AwaitsOpenLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  // Shared with the sessions whose memory is not freed yet.
  const std::shared_ptr<const int> in_memory_ = std::make_shared<int>(0);

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool wants_session_ ABSL_GUARDED_BY(mu_) = false;
  // The session in use; null: none.
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mu_);
  // Ended, and not yet given to the abort queue.
  std::list<std::shared_ptr<Session>> ending_ ABSL_GUARDED_BY(mu_);
  // The push whose turn it is; kept until it is released.
  std::weak_ptr<NcclLaneUser> user_ ABSL_GUARDED_BY(mu_);
  const NcclLaneUser* user_key_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t user_number_ ABSL_GUARDED_BY(mu_) = 0;
  // An earlier push that asked during a later one's turn. It asks again after that.
  std::weak_ptr<NcclLaneUser> passed_over_ ABSL_GUARDED_BY(mu_);
  // The user has sent something over `session_`.
  bool used_ ABSL_GUARDED_BY(mu_) = false;
  // The user has joined `session_` for a pull.
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  // A session was refused to the user: the rest of its push uses the network.
  bool user_is_refused_ ABSL_GUARDED_BY(mu_) = false;
  // When the user hears that the session it used has ended, and why.
  absl::Time tell_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  // Pushes to call at that time.
  std::vector<std::weak_ptr<NcclLaneUser>> call_soon_ ABSL_GUARDED_BY(mu_);
  absl::Time call_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // The user waits for OnTurn.
  bool waits_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);
  absl::Time refused_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration retry_after_ ABSL_GUARDED_BY(mu_);

  // Last member: the thread uses everything above.
  std::thread thread_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_NCCL_LANE_H_
