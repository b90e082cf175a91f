// Where workers of this machine get their sessions over shared memory: issues tokens to callers
// that gRPC has authenticated, accepts connections on a UNIX socket, checks whose process connects
// and whose token it presents, and runs the sessions. Their number, and so their memory, is
// bounded, of each caller's too, tokens that are not redeemed yet included. Owned by ShardServer;
// thread-safe.
#ifndef KAON_SERVER_SHARD_TRANSPORT_SHM_ENDPOINT_H_
#define KAON_SERVER_SHARD_TRANSPORT_SHM_ENDPOINT_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_local.pb.h"
#include "kernels/mutex.h"
#include "proto/descriptor.h"
#include "proto/identity.h"
#include "proto/shm_region.h"
#include "proto/shm_ring.h"
#include "server/shard/transport/shm_session.h"
#include "server/shard/transport/shm_tokens.h"

namespace kaon::shard {

inline constexpr uint32_t kMaxShmSessions = 64;
// Of one rank: twice what a worker uses, as one that was started again need not wait until the end
// of its former life is seen.
inline constexpr uint32_t kMaxShmSessionsOfRank = 4;
// Of host memory, for each: its two rings and the message that is being taken.
inline constexpr uint64_t kShmSessionBytes = uint64_t{10} << 20;
static_assert(2 * proto::kShmRingBytes + proto::kMaxRingBody < kShmSessionBytes);

class ShmEndpoint {
 public:
  struct Options {
    uint32_t max_sessions = 0;
    // For the socket; empty: an abstract one.
    std::string directory;
    // Whose processes may connect: this one's user, and others.
    uid_t user = geteuid();
    std::vector<uid_t> other_users;
    absl::Duration token_lifetime = absl::Seconds(10);
    // From a connection to its token.
    absl::Duration token_timeout = absl::Seconds(2);
    absl::Duration idle_limit = absl::Minutes(5);
    size_t ring_bytes = proto::kShmRingBytes;
  };

  // Removes the sockets that killed shards of this user have left in the directory.
  // FAILED_PRECONDITION if others may write to it or the socket cannot be made, INVALID_ARGUMENT if
  // its name is too long.
  static absl::StatusOr<std::unique_ptr<ShmEndpoint>> Start(Options options,
                                                            const ShmBackends& backends);
  // As Stop.
  ~ShmEndpoint();

  // A token for `peer`, whose machine booted as `boot_id`. FAILED_PRECONDITION for another machine
  // and for readers, RESOURCE_EXHAUSTED when all sessions are taken, or as many as `peer` may have,
  // UNAVAILABLE once stopped.
  absl::StatusOr<v1::OpenSessionResponse> Open(const proto::Identity& peer,
                                               const std::string& boot_id);
  // Ends every session; returns when their threads have. Idempotent.
  void Stop();

  // Of workers that are connected.
  uint32_t num_sessions() const;

 private:
  // A connection that has not presented its token yet.
  struct Connection {
    proto::Descriptor socket;
    absl::Time deadline;
  };
  struct Session {
    std::shared_ptr<ShmSession> session;
    std::thread thread;
  };

  ShmEndpoint(Options options, const ShmBackends& backends, std::string address,
              proto::Descriptor listener, proto::Descriptor wake);
  // Until Stop: accepts, and joins the sessions that have ended.
  void Run();
  void Accept();
  bool MayConnect(const proto::Descriptor& socket) const;
  // True if the connection is done with: it has become a session, or is refused.
  bool TakeToken(Connection& connection);
  absl::Status StartSession(proto::Descriptor socket, const proto::Identity& peer);
  // How many sessions `peer` may have: no certificate may take all that others need.
  uint32_t LimitOf(const proto::Identity& peer) const;
  // A session of `peer` is no more.
  void Release(const proto::Identity& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void JoinEnded() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  const Options options_;
  const ShmBackends backends_;
  const std::string address_;
  const std::string boot_id_;
  const proto::Descriptor listener_;
  const proto::Descriptor wake_;

  // Of Run's thread.
  std::vector<Connection> connections_;
  absl::Time accept_after_ = absl::InfinitePast();

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  ShmTokens tokens_ ABSL_GUARDED_BY(mu_);
  std::vector<Session> sessions_ ABSL_GUARDED_BY(mu_);
  // How many sessions each caller has, by URI, from the redemption of a token to the end.
  std::map<std::string, uint32_t> held_ ABSL_GUARDED_BY(mu_);
  // Of sessions_, those whose Run has returned.
  std::vector<const ShmSession*> ended_ ABSL_GUARDED_BY(mu_);

  // Last: it uses everything above.
  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHM_ENDPOINT_H_
