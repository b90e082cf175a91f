// Decides which connections of one listener stay. A peer is unknown until its first authorized
// call. Unknown peers are limited in number and lifetime: a newer one replaces the oldest of the
// address that has most. Known peers are never cut.
// Not thread-safe: the owner serializes the calls.
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

// Remote end of a connection.
struct Peer {
  // Key of the limit per address: an IPv4 address, or the /64 network of an IPv6 address.
  std::string address;
  // address:port, unique among the open connections of a listener.
  std::string name;
};

Peer PeerOf(const sockaddr_storage& address);

// Converts what grpc::ServerContext::peer() returns to a Peer::name.
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
  // Divides `descriptors`: unknown peers get at most a quarter of them, and at most 128; one
  // address gets at most three quarters.
  static Limits Share(size_t descriptors);

  explicit ConnectionTable(const Limits& limits) : limits_(limits) {}

  // Returns whether another connection may be accepted now. Cuts an unknown peer if that makes
  // room; the room exists once the owner has closed its descriptor.
  bool MakeRoom(absl::Time now);
  // Returns whether known peers alone fill the table, so that waiting for room is useless.
  bool FullOfKnown() const;

  // Adds the connection `fd`, which its owner may close at any time. Returns false if its address
  // has too many or descriptors ran out: the caller must close it.
  bool Add(int fd, const Peer& peer, absl::Time now);
  // Marks the peer of that name as known: it made an authorized call.
  void MarkKnown(const std::string& name);
  // Cuts unknown peers that are older than unknown_lifetime, and removes connections that their
  // owner has closed.
  void Sweep(absl::Time now);

  size_t num_connections() const { return connections_.size(); }
  size_t num_unknown() const { return unknown_.size(); }
  // Returns how many connections were cut so far.
  uint64_t num_cut() const { return num_cut_; }

 private:
  struct Connection {
    int fd;
    // The kernel's number of this socket. It tells a closed connection from a later one with the
    // same descriptor.
    uint64_t cookie;
    Peer peer;
    absl::Time since;
    // Duplicate of the descriptor while the peer is unknown. The table shuts down this one, because
    // the owner may have closed `fd`.
    proto::Descriptor duplicate;
    // False once the connection was cut: it no longer counts for its address.
    bool live = true;
  };
  using Connections = std::list<Connection>;

  void Cut(Connections::iterator connection);
  // Ends the unknown state of a peer, without cutting or removing its connection.
  void EndUnknown(const std::string& name);
  size_t CountOf(const std::string& address) const;
  // Returns the oldest unknown connection of `address`, or else of the address that has most of
  // them; end() if there is none.
  Connections::iterator Oldest(const std::string* address = nullptr);
  void ReapClosed(absl::Time now);
  bool HasRoom() const;
  void Leave(const Peer& peer);

  const Limits limits_;
  // Connections in order of arrival.
  Connections connections_;
  // Unknown connections by name of the peer.
  std::map<std::string, Connections::iterator> unknown_;
  // Number of live connections by address.
  std::map<std::string, size_t> by_address_;
  uint64_t num_cut_ = 0;
  absl::Time next_reap_ = absl::InfinitePast();
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_CONNECTION_TABLE_H_
