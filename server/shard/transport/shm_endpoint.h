// Serves workers of this machine over shared memory. It issues tokens to callers that gRPC has
// authenticated and accepts connections on a UNIX socket. It checks the process and token of each
// connection, and runs the sessions. Limits bound the number of sessions, and so their memory, in
// total and per caller; unredeemed tokens count. Owned by ShardServer; thread-safe.
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
// Limit per rank: twice what a worker uses. A restarted worker need not wait until the shard
// notices the end of its former process.
inline constexpr uint32_t kMaxShmSessionsOfRank = 4;
// Host memory per session: two rings and the message being processed.
inline constexpr uint64_t kShmSessionBytes = uint64_t{10} << 20;
static_assert(2 * proto::kShmRingBytes + proto::kMaxRingBody < kShmSessionBytes);

class ShmEndpoint {
 public:
  struct Options {
    uint32_t max_sessions = 0;
    // Directory of the socket; empty: an abstract socket.
    std::string directory;
    // Users whose processes may connect: this process's user, and others.
    uid_t user = geteuid();
    std::vector<uid_t> other_users;
    absl::Duration token_lifetime = absl::Seconds(10);
    // Maximum time from a connection to its token.
    absl::Duration token_timeout = absl::Seconds(2);
    absl::Duration idle_limit = absl::Minutes(5);
    size_t ring_bytes = proto::kShmRingBytes;
  };

  // Removes sockets that killed shards of this user left in the directory. Returns
  // FAILED_PRECONDITION if others may write to the directory or the socket cannot be created.
  // Returns INVALID_ARGUMENT if the socket's name is too long.
  static absl::StatusOr<std::unique_ptr<ShmEndpoint>> Start(Options options,
                                                            const ShmBackends& backends);
  // Calls Stop.
  ~ShmEndpoint();

  // Issues a token to `peer`, whose machine has boot id `boot_id`. Returns FAILED_PRECONDITION for
  // another machine and for readers, UNAVAILABLE after Stop. Returns RESOURCE_EXHAUSTED if all
  // sessions are in use, or as many as `peer` may have.
  absl::StatusOr<v1::OpenSessionResponse> Open(const proto::Identity& peer,
                                               const std::string& boot_id);
  // Ends every session and blocks until their threads have ended. Idempotent.
  void Stop();

  // Number of sessions of connected workers.
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
  // Accepts connections and joins ended sessions, until Stop.
  void Run();
  void Accept();
  bool MayConnect(const proto::Descriptor& socket) const;
  // Returns true if the connection needs no more work: it became a session or was refused.
  bool TakeToken(Connection& connection);
  absl::Status StartSession(proto::Descriptor socket, const proto::Identity& peer);
  // Returns how many sessions `peer` may have, so that no certificate can use up all of them.
  uint32_t LimitOf(const proto::Identity& peer) const;
  // Releases a session of `peer`.
  void Release(const proto::Identity& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void JoinEnded() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  const Options options_;
  const ShmBackends backends_;
  const std::string address_;
  const std::string boot_id_;
  const proto::Descriptor listener_;
  const proto::Descriptor wake_;

  // Used by Run's thread only.
  std::vector<Connection> connections_;
  absl::Time accept_after_ = absl::InfinitePast();

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  ShmTokens tokens_ ABSL_GUARDED_BY(mu_);
  std::vector<Session> sessions_ ABSL_GUARDED_BY(mu_);
  // Sessions per caller URI, from redemption of the token to the end of the session.
  std::map<std::string, uint32_t> held_ ABSL_GUARDED_BY(mu_);
  // Elements of sessions_ whose Run has returned.
  std::vector<const ShmSession*> ended_ ABSL_GUARDED_BY(mu_);

  // Last member: it uses everything above.
  std::thread thread_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHM_ENDPOINT_H_
