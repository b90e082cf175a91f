#include "server/listener/connection_table.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <list>
#include <string>
#include <vector>

namespace kaon::listener {
namespace {

class ConnectionTableTest : public ::testing::Test {
 protected:
  struct Pair {
    proto::Descriptor server;
    proto::Descriptor client;
    Peer peer;
    bool added = false;
  };

  // A connection from a new port of `address`.
  Pair& Connect(const std::string& address) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    Pair& pair = pairs_.emplace_back();
    pair.server = proto::Descriptor(ends[0]);
    pair.client = proto::Descriptor(ends[1]);
    pair.peer = {address, address + ":" + std::to_string(++last_port_)};
    pair.added = table_.Add(ends[0], pair.peer, now_);
    return pair;
  }

  static bool IsCut(const Pair& pair) {
    char byte;
    return recv(pair.client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  static void Close(Pair& pair) { pair.server = proto::Descriptor(); }

  // 2 unknown peers, 3 connections of one address, 2 of one identity, 8 descriptors.
  ConnectionTable table_{{.descriptors = 8, .unknown = 2, .per_address = 3, .per_identity = 2}};
  std::list<Pair> pairs_;
  int last_port_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ConnectionTableTest, CutsTheOldestUnknownPeerOfWhoeverHasMost) {
  const Pair& honest = Connect("a");
  const Pair& first = Connect("b");
  const Pair& second = Connect("b");
  // Of equals, the older one.
  EXPECT_TRUE(IsCut(honest));
  EXPECT_FALSE(IsCut(first));
  const Pair& again = Connect("a");
  EXPECT_TRUE(IsCut(first));
  Connect("b");
  EXPECT_TRUE(IsCut(again) != IsCut(second));
  EXPECT_EQ(table_.num_unknown(), 2u);
}

TEST_F(ConnectionTableTest, NeverCutsAKnownPeer) {
  const Pair& known = Connect("a");
  table_.MarkKnown(known.peer.name, "worker");
  for (int i = 0; i < 20; ++i) Connect("b");
  now_ += absl::Hours(1);
  table_.Sweep(now_);
  EXPECT_FALSE(IsCut(known));
  EXPECT_EQ(table_.num_unknown(), 0u);
}

TEST_F(ConnectionTableTest, NamesTheConnectionsOfKnownPeersWithCertificates) {
  const auto certificate = std::make_shared<auth::PeerCertificate>();
  Pair& certified = Connect("a");
  table_.MarkKnown(certified.peer.name, "a", certificate);
  table_.MarkKnown(Connect("b").peer.name, "b");
  EXPECT_TRUE(table_.IsUnknown(Connect("c").peer.name));
  const std::vector<CertifiedConnection> named = table_.Certified();
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].certificate, certificate);
  EXPECT_TRUE(table_.End(named[0].id));
  EXPECT_TRUE(IsCut(certified));
  EXPECT_TRUE(table_.Certified().empty());
}

TEST_F(ConnectionTableTest, CutsConnectionsOfAnIdentityThatHasItsShare) {
  const auto certificate = std::make_shared<auth::PeerCertificate>();
  std::vector<Pair*> taken;
  for (const char* address : {"a", "b", "c"}) {
    taken.push_back(&Connect(address));
    table_.MarkKnown(taken.back()->peer.name, "w", certificate);
  }
  EXPECT_FALSE(IsCut(*taken[1]));
  EXPECT_TRUE(IsCut(*taken[2]));
  EXPECT_EQ(table_.num_cut(), 1u);
  const Pair& other = Connect("a");
  table_.MarkKnown(other.peer.name, "v", certificate);
  EXPECT_FALSE(IsCut(other));
  // Without certificates, all peers are one identity.
  for (const char* address : {"a", "b", "c"}) {
    const Pair& plain = Connect(address);
    table_.MarkKnown(plain.peer.name, "local");
    EXPECT_FALSE(IsCut(plain));
  }
  Close(*taken[0]);
  table_.Sweep(now_);
  const Pair& again = Connect("c");
  table_.MarkKnown(again.peer.name, "w", certificate);
  EXPECT_FALSE(IsCut(again));
}

TEST_F(ConnectionTableTest, CutsUnknownPeersAfterTenSeconds) {
  const Pair& early = Connect("a");
  now_ += absl::Seconds(9);
  const Pair& late = Connect("a");
  table_.Sweep(now_);
  EXPECT_FALSE(IsCut(early));
  now_ += absl::Seconds(1);
  table_.Sweep(now_);
  EXPECT_TRUE(IsCut(early));
  EXPECT_FALSE(IsCut(late));
  EXPECT_EQ(table_.num_cut(), 1u);
}

TEST_F(ConnectionTableTest, RefusesAnAddressThatHasItsShare) {
  std::vector<Pair*> known;
  for (int i = 0; i < 3; ++i) {
    known.push_back(&Connect("a"));
    table_.MarkKnown(known.back()->peer.name, "worker");
  }
  EXPECT_FALSE(Connect("a").added);
  EXPECT_TRUE(Connect("b").added);
  Close(*known[1]);
  EXPECT_TRUE(Connect("a").added);
}

TEST_F(ConnectionTableTest, LeavesTheDescriptorsThatItMayNotHave) {
  for (const char* address : {"a", "b", "c", "d", "e", "f", "g"}) {
    ASSERT_TRUE(table_.MakeRoom(now_));
    table_.MarkKnown(Connect(address).peer.name, "worker");
  }
  // One place is left, and an unknown peer needs two.
  EXPECT_FALSE(table_.MakeRoom(now_));
  EXPECT_TRUE(table_.FullOfKnown());
  Close(pairs_.front());
  EXPECT_TRUE(table_.MakeRoom(now_));
}

TEST_F(ConnectionTableTest, MakesRoomWhereUnknownPeersTakeIt) {
  for (const char* address : {"a", "b", "c", "d", "e", "f"}) {
    table_.MarkKnown(Connect(address).peer.name, "worker");
  }
  Pair& unknown = Connect("g");
  EXPECT_FALSE(table_.MakeRoom(now_));
  EXPECT_TRUE(IsCut(unknown));
  // Its descriptor still exists, so the table can wait until it closes.
  EXPECT_FALSE(table_.FullOfKnown());
  Close(unknown);
  EXPECT_TRUE(table_.MakeRoom(now_));
}

TEST_F(ConnectionTableTest, EndsConnectionsOnRequestKnownOrNot) {
  const Pair& known = Connect("a");
  table_.MarkKnown(known.peer.name, "worker");
  const Pair& unknown = Connect("b");
  const std::vector<OpenConnection> open = table_.Open();
  ASSERT_EQ(open.size(), 2u);
  EXPECT_TRUE(table_.End(open[0].id));
  EXPECT_TRUE(IsCut(known));
  EXPECT_FALSE(IsCut(unknown));
  EXPECT_FALSE(table_.End(open[0].id));
  EXPECT_TRUE(table_.End(open[1].id));
  EXPECT_TRUE(table_.Open().empty());
  EXPECT_EQ(table_.num_unknown(), 0u);
}

TEST_F(ConnectionTableTest, SaysWhoOwnsAConnection) {
  const auto certificate = std::make_shared<auth::PeerCertificate>();
  table_.MarkKnown(Connect("a").peer.name, "worker", certificate);
  const Pair& plain = Connect("b");
  table_.MarkKnown(plain.peer.name, "anybody");
  Connect("c");
  const std::vector<OpenConnection> open = table_.Open();
  ASSERT_EQ(open.size(), 3u);
  EXPECT_EQ(open[0].owner, "worker");
  EXPECT_EQ(open[1].owner, plain.peer.name);
  EXPECT_EQ(open[2].owner, "c");
}

TEST_F(ConnectionTableTest, AsksTheKernelAboutNoOtherConnectionThatHasTheDescriptorNow) {
  Pair& first = Connect("a");
  table_.CountsOf(first.peer.name)->taken_bytes = 7;
  const OpenConnection open = table_.Open()[0];
  EXPECT_EQ(UseOf(open)->taken_bytes, 7u);
  const int fd = first.server.get();
  Close(first);
  EXPECT_FALSE(UseOf(open).has_value());
  ASSERT_EQ(Connect("b").server.get(), fd);
  EXPECT_FALSE(UseOf(open).has_value());
  EXPECT_EQ(table_.CountsOf("nobody"), nullptr);
}

TEST_F(ConnectionTableTest, CountsTheBytesThatTheProcessHasRead) {
  const proto::Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  ASSERT_EQ(getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const proto::Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  const proto::Descriptor server(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(table_.Add(server.get(), {"a", "a:1"}, now_));
  const OpenConnection open = table_.Open()[0];
  ASSERT_EQ(send(client.get(), "hello", 5, 0), 5);
  char bytes[5];
  ASSERT_EQ(recv(server.get(), bytes, 5, MSG_PEEK | MSG_WAITALL), 5);
  EXPECT_EQ(UseOf(open)->received_bytes, 0u);
  ASSERT_EQ(recv(server.get(), bytes, 3, 0), 3);
  EXPECT_EQ(UseOf(open)->received_bytes, 3u);
}

TEST_F(ConnectionTableTest, EndsNoOtherConnectionThatHasTheDescriptorNow) {
  Pair& first = Connect("a");
  const int fd = first.server.get();
  const uint64_t id = table_.Open()[0].id;
  Close(first);
  const Pair& second = Connect("b");
  ASSERT_EQ(second.server.get(), fd);
  EXPECT_FALSE(table_.End(id));
  EXPECT_FALSE(IsCut(second));
}

TEST(PeerTest, HasTheSameNameAsGrpcGivesIt) {
  sockaddr_storage address = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(80);
  inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr);
  EXPECT_EQ(PeerOf(address).name, PeerName("ipv4:10.1.2.3:80"));
  EXPECT_EQ(PeerOf(address).address, "10.1.2.3");
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(80);
  inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
  EXPECT_EQ(PeerOf(address).name, PeerName("ipv4:10.1.2.3:80"));
  inet_pton(AF_INET6, "fe80::1:2", &v6.sin6_addr);
  EXPECT_EQ(PeerOf(address).name, PeerName("ipv6:%5Bfe80::1:2%253%5D:80"));
  EXPECT_EQ(PeerOf(address).name, PeerName("ipv6:[fe80::1:2]:80"));
  EXPECT_EQ(PeerOf(address).address, "fe80::");
}

TEST(LimitsTest, ShareOutWhatThereIs) {
  const ConnectionTable::Limits small = ConnectionTable::Share(20);
  EXPECT_EQ(small.unknown, 5u);
  EXPECT_EQ(small.per_address, 15u);
  EXPECT_EQ(ConnectionTable::Share(20000).unknown, 128u);
}

}  // namespace
}  // namespace kaon::listener
