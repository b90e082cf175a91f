// Decides which connections of one listener stay. Unknown peers, who have made no authorized call
// yet, are few and short-lived: a newer one replaces the oldest of whoever has most. Known peers
// are never cut. Used by one thread at a time, or under the owner's lock.
#ifndef KAON_SERVER_LISTENER_CONNECTION_TABLE_H_
#define KAON_SERVER_LISTENER_CONNECTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/descriptor.h"

struct sockaddr_storage;

namespace kaon::listener {

// The other end of a connection.
struct Peer {
  // Whom a limit per address counts it for: an IPv4 address, or the /64 network of an IPv6 one.
  std::string address;
  // address:port; no two open connections of a listener share it.
  std::string name;
};

Peer PeerOf(const sockaddr_storage& address);

// Peer::name of what grpc::ServerContext::peer() returns.
std::string PeerName(absl::string_view grpc_peer);

class ConnectionTable {
 public:
  struct Limits {
    // Descriptors for all connections: one each, and a second one while the peer is unknown.
    size_t descriptors = 0;
    size_t unknown = 0;
    size_t per_address = 0;
    absl::Duration unknown_lifetime = absl::Seconds(10);
  };
  // Shares `descriptors` out: at most a quarter of them, and 128, to unknown peers, and three
  // quarters to one address.
  static Limits Share(size_t descriptors);

  explicit ConnectionTable(const Limits& limits) : limits_(limits) {}

  // Returns whether another connection may be accepted now. Cuts an unknown peer if that makes
  // room; the room is there once the owner has closed its descriptor.
  bool MakeRoom(absl::Time now);
  // Whether nothing but known peers fills the table: waiting for room is in vain.
  bool FullOfKnown() const;

  // Takes in the connection `fd`, which its owner may close at any time. False: close it, its
  // address has too many.
  bool Add(int fd, const Peer& peer, absl::Time now);
  // The peer of that name made an authorized call.
  void MarkKnown(const std::string& name);
  // Cuts unknown peers that are older than unknown_lifetime, and forgets connections that their
  // owner has closed.
  void Sweep(absl::Time now);

  size_t num_connections() const { return connections_.size(); }
  size_t num_unknown() const { return unknown_.size(); }
  // Connections that were cut so far.
  uint64_t num_cut() const { return num_cut_; }

 private:
  struct Connection {
    int fd;
    // The kernel's number of this socket: another one may have the same descriptor later.
    uint64_t cookie;
    Peer peer;
    absl::Time since;
    // Open while the peer is unknown: a descriptor that its owner may have closed must not be shut
    // down.
    proto::Descriptor duplicate;
    // Still counted for its address: not cut.
    bool live = true;
  };
  using Connections = std::list<Connection>;

  void Cut(Connections::iterator connection);
  // Neither cuts it nor forgets it.
  void EndUnknown(const std::string& name);
  size_t CountOf(const std::string& address) const;
  // The oldest unknown connection of the address that has most of them, or of `address`; end()
  // without any.
  Connections::iterator Oldest(const std::string* address = nullptr);
  void ReapClosed(absl::Time now);
  bool HasRoom() const;
  void Leave(const Peer& peer);

  const Limits limits_;
  // In the order of their arrival.
  Connections connections_;
  // By name of the peer.
  std::map<std::string, Connections::iterator> unknown_;
  // Live connections by address.
  std::map<std::string, size_t> by_address_;
  uint64_t num_cut_ = 0;
  absl::Time next_reap_ = absl::InfinitePast();
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CONNECTION_TABLE_H_
