// Decides which connections of one listener stay. An unknown peer has made no authorized call yet.
// Unknown peers are few and short-lived: a newer one replaces the oldest one of the address that
// has most. Known peers end only on request, as a MemoryGuard or a PolicyThread makes it. Used by
// one thread at a time, or under the owner's lock.
#ifndef KAON_SERVER_LISTENER_CONNECTION_TABLE_H_
#define KAON_SERVER_LISTENER_CONNECTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/descriptor.h"
#include "server/auth/call_limits.h"
#include "server/auth/peer_certificate.h"
#include "server/listener/call_counts.h"
#include "server/listener/memory_guard.h"

struct sockaddr_storage;

namespace kaon::listener {

// Remote end of a connection.
struct Peer {
  // The unit of the limit per address: an IPv4 address, or the /64 network of an IPv6 address.
  std::string address;
  // address:port, unique among the open connections of a listener.
  std::string name;
};

Peer PeerOf(const sockaddr_storage& address);

// Returns Peer::name for a string of grpc::ServerContext::peer().
std::string PeerName(absl::string_view grpc_peer);

// A connection of a known peer; `id` is that of ConnectionUse.
struct CertifiedConnection {
  uint64_t id;
  std::shared_ptr<const auth::PeerCertificate> certificate;
};

// An open connection, as UseOf needs it.
struct OpenConnection {
  int fd;
  uint64_t id;
  std::string owner;
  std::shared_ptr<const CallCounts> counts;
};

// Returns what the connection has sent; nothing once its descriptor is closed, or is that of
// another connection. Asks the kernel, so call it without a lock.
std::optional<ConnectionUse> UseOf(const OpenConnection& connection);

class ConnectionTable {
 public:
  struct Limits {
    // Descriptors for all connections. A connection needs one, and a second one while its peer is
    // unknown.
    size_t descriptors = 0;
    size_t unknown = 0;
    size_t per_address = 0;
    // Connections of one certificate's identity. An honest cluster has far fewer.
    size_t per_identity = 16384;
    absl::Duration unknown_lifetime = absl::Seconds(10);
  };
  // Divides `descriptors`. Unknown peers get at most a quarter of them, and at most 128. One
  // address gets at most three quarters.
  static Limits Share(size_t descriptors);

  // Connections tell `call_limits`, if there are any, when they are gone.
  explicit ConnectionTable(const Limits& limits,
                           std::shared_ptr<auth::CallLimits> call_limits = nullptr)
      : limits_(limits), call_limits_(std::move(call_limits)) {}

  // Returns whether another connection may be accepted now. Cuts an unknown peer if that makes
  // room; the room exists once the owner has closed its descriptor.
  bool MakeRoom(absl::Time now);
  // Returns whether known peers fill the table, so that waiting makes no room.
  bool FullOfKnown() const;

  // Adds the connection `fd`, which its owner may close at any time. Returns false if the address
  // has too many connections or no descriptor is left; the caller must then close `fd`.
  bool Add(int fd, const Peer& peer, absl::Time now);
  bool IsUnknown(const std::string& name) const { return unknown_.count(name) > 0; }
  // Call it when the peer of that name, with that identity, has made an authorized call. Cuts the
  // connection if the identity has too many. The certificate is null without TLS; peers without
  // one may share an identity, which then has no limit.
  void MarkKnown(const std::string& name, const std::string& identity,
                 std::shared_ptr<const auth::PeerCertificate> certificate = nullptr);
  // Returns the live connections of known peers with certificates.
  std::vector<CertifiedConnection> Certified() const;
  // Cuts unknown peers older than unknown_lifetime. Forgets connections that their owner has
  // closed.
  void Sweep(absl::Time now);

  // Returns the counts of the connection of that name; null if it is gone.
  std::shared_ptr<CallCounts> CountsOf(const std::string& name) const;
  // Returns the connections that are not cut. An unknown peer is owned by its address, and a known
  // one by its identity. Without a certificate, peers may share an identity, so each connection
  // is its own owner.
  std::vector<OpenConnection> Open() const;
  // Ends the connection ConnectionUse::id, known or not, and discards what it has sent. Returns
  // false if it is gone already, or no descriptor is free. It does not count as cut.
  bool End(uint64_t id);

  size_t num_connections() const { return connections_.size(); }
  size_t num_unknown() const { return unknown_.size(); }
  // Returns the number of connections cut so far.
  uint64_t num_cut() const { return num_cut_; }

 private:
  struct Connection {
    int fd;
    // The kernel's number of this socket. Another socket may get the same descriptor later.
    uint64_t cookie;
    Peer peer;
    absl::Time since;
    // Open while the peer is unknown. Shut this one down: the owner may have closed its own
    // descriptor.
    proto::Descriptor duplicate;
    // Identity and certificate of the peer, once it is known.
    std::string identity;
    std::shared_ptr<const auth::PeerCertificate> certificate;
    std::shared_ptr<CallCounts> counts;
    // Not cut, so still counted for its address.
    bool live = true;
  };
  using Connections = std::list<Connection>;

  void Cut(Connections::iterator connection);
  // Ends the unknown state without cutting or forgetting the connection.
  void EndUnknown(const std::string& name);
  size_t CountOf(const std::string& address) const;
  // Returns the oldest unknown connection of `address`, or by default of the address that has most;
  // end() if there is none.
  Connections::iterator Oldest(const std::string* address = nullptr);
  void ReapClosed(absl::Time now);
  bool HasRoom() const;
  // Call it once when a connection is not live any more.
  void Leave(const Connection& connection);
  void Forget(Connections::iterator connection);

  const Limits limits_;
  const std::shared_ptr<auth::CallLimits> call_limits_;
  // Ordered by arrival.
  Connections connections_;
  // Keyed by Peer::name.
  std::map<std::string, Connections::iterator> unknown_;
  // Keyed by Peer::name, the newest of each.
  std::map<std::string, Connections::iterator> by_name_;
  // Number of live connections by address, and of those with a certificate by identity.
  std::map<std::string, size_t> by_address_;
  std::map<std::string, size_t> by_identity_;
  uint64_t num_cut_ = 0;
  absl::Time next_reap_ = absl::InfinitePast();
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CONNECTION_TABLE_H_
