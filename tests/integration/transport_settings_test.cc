// Effects of connection settings (protocol.md section 4) on the wire, seen from plain sockets that
// speak HTTP/2 (RFC 9113). Also checks the sizes of the reads that gRPC asks the system for.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "client/transport/channel.h"
#include "kernels/steady_clock.h"
#include "proto/descriptor.h"
#include "proto/kaon/v1/admin.grpc.pb.h"
#include "tests/testing/in_process_cluster.h"

namespace {

// Reads of the whole process, and those with room for less than 1 MiB. The few KiB that the short
// calls here have read before are allowed for.
constexpr size_t kReadBytes = (1 << 20) - (64 << 10);
std::atomic<int64_t> reads{0};
std::atomic<int64_t> smaller_reads{0};
// A server asks for 8 KiB at first, and never for more than 64.
constexpr size_t kServerReadBytes = 64 << 10;
std::atomic<int64_t> server_reads{0};

}  // namespace

// Replaces the function of the C library, for gRPC, too.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  // A read of the error queue does not count.
  if ((flags & MSG_ERRQUEUE) != 0) return syscall(SYS_recvmsg, fd, message, flags);
  size_t room = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) room += message->msg_iov[i].iov_len;
  ++reads;
  if (room < kReadBytes) ++smaller_reads;
  if (room <= kServerReadBytes) ++server_reads;
  return syscall(SYS_recvmsg, fd, message, flags);
}

namespace kaon {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kPrefaceBytes = sizeof(kPreface) - 1;
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kSettingsFrame = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint16_t kInitialWindowSize = 4;
constexpr uint32_t kLookaheadBytes = 1 << 20;

// Returns an empty SETTINGS frame.
std::string EmptySettings() {
  return std::string(3, '\0') + static_cast<char>(kSettingsFrame) + std::string(5, '\0');
}

void Write(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

proto::Descriptor Socket() {
  proto::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {30, 0};
  EXPECT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  return socket;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::string Read(int fd, size_t size) {
  std::string bytes(size, '\0');
  EXPECT_EQ(recv(fd, bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
  return bytes;
}

uint32_t BigEndian(const std::string& bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = at; i < at + size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Reads a settings frame, which must be next; settings by identifier.
std::map<uint16_t, uint32_t> ReadSettings(int fd) {
  const std::string header = Read(fd, 9);
  EXPECT_EQ(static_cast<uint8_t>(header[3]), kSettingsFrame);
  const std::string body = Read(fd, BigEndian(header, 0, 3));
  std::map<uint16_t, uint32_t> settings;
  for (size_t at = 0; at + 6 <= body.size(); at += 6) {
    settings[static_cast<uint16_t>(BigEndian(body, at, 2))] = BigEndian(body, at + 2, 4);
  }
  return settings;
}

proto::Descriptor Connect(const std::string& address) {
  proto::Descriptor socket = Socket();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const sockaddr_in server = Loopback(port);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0);
  return socket;
}

std::map<uint16_t, uint32_t> SettingsOfServer(const std::string& address) {
  const proto::Descriptor socket = Connect(address);
  Write(socket.get(), std::string(kPreface, kPrefaceBytes) + EmptySettings());
  return ReadSettings(socket.get());
}

TEST(TransportSettingsTest, ServersLookAhead1MiB) {
  const testing::InProcessCluster cluster(1);
  EXPECT_EQ(SettingsOfServer(cluster.shard_address(0))[kInitialWindowSize], kLookaheadBytes);
  EXPECT_EQ(SettingsOfServer(cluster.coordinator_address())[kInitialWindowSize], kLookaheadBytes);
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& body) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(body.size() >> shift & 0xff);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xff);
  return frame + body;
}

// A header field without index and without Huffman's code (RFC 7541, 6.2.2); short ones.
std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

// Our pings are answered in order: at the second answer the other end has read everything sent
// before. It sends no pings of its own.
void ExpectNoPingBut2Answers(int fd) {
  int answered = 0;
  for (const char* ping : {"first...", "second.."}) {
    Write(fd, Frame(kPing, 0, 0, ping));
    for (bool is_answered = false; !is_answered;) {
      const std::string header = Read(fd, 9);
      const std::string body = Read(fd, BigEndian(header, 0, 3));
      if (::testing::Test::HasFailure()) return;
      if (static_cast<uint8_t>(header[3]) != kPing) continue;
      is_answered = (static_cast<uint8_t>(header[4]) & kAck) != 0;
      EXPECT_TRUE(is_answered) << "a ping of the other end's";
      answered += is_answered ? 1 : 0;
    }
  }
  EXPECT_EQ(answered, 2);
}

// The begin of a message of 1 MiB, more than one read's worth of it.
std::string UnfinishedMessage() {
  std::string frames = Frame(kData, 0, 1, std::string(1, '\0') + std::string("\0\x10\0\0", 4));
  for (int i = 0; i < 3; ++i) frames += Frame(kData, 0, 1, std::string(16384, 'g'));
  return frames;
}

// If gRPC probed the bandwidth, it would send a ping as soon as data arrives and widen its windows
// by the result (protocol.md section 4).
TEST(TransportSettingsTest, ServersDoNotProbeTheBandwidth) {
  const testing::InProcessCluster cluster(1);
  const proto::Descriptor socket = Connect(cluster.shard_address(0));
  const std::string call = Field(":method", "POST") + Field(":scheme", "http") +
                           Field(":path", "/kaon.v1.ShardData/Push") +
                           Field(":authority", "shard") + Field("te", "trailers") +
                           Field("content-type", "application/grpc");
  Write(socket.get(), std::string(kPreface, kPrefaceBytes) + EmptySettings() +
                          Frame(kHeaders, kEndHeaders, 1, call) + UnfinishedMessage());
  ExpectNoPingBut2Answers(socket.get());
}

// Listens on loopback for one connection.
class PlainServer {
 public:
  PlainServer() {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }

  std::shared_ptr<grpc::Channel> Channel() const {
    const auto channel = client::CreateChannel(address_, TlsFiles(), proto::Role::kShard);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }

  proto::Descriptor Accept() const {
    return proto::Descriptor(accept(listener_.get(), nullptr, nullptr));
  }

 private:
  const proto::Descriptor listener_ = Socket();
  std::string address_;
};

// Connects a client to a server of plain sockets. `reads_settings` reads them at the server's end.
void ExpectToConnect(const std::function<void(int fd)>& reads_settings) {
  const PlainServer server;
  const auto channel = server.Channel();
  // gRPC hardly works on a connection unless a call waits for it.
  std::thread waiter([&] {
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(30);
    EXPECT_TRUE(channel->WaitForConnected(deadline));
  });
  const proto::Descriptor connection = server.Accept();
  EXPECT_TRUE(connection.valid()) << "nobody came within half a minute";
  if (connection.valid()) {
    EXPECT_EQ(Read(connection.get(), kPrefaceBytes), kPreface);
    reads_settings(connection.get());
    Write(connection.get(), EmptySettings());
  }
  waiter.join();
}

TEST(TransportSettingsTest, ClientsLookAhead1MiB) {
  ExpectToConnect([](int fd) { EXPECT_EQ(ReadSettings(fd)[kInitialWindowSize], kLookaheadBytes); });
}

// Returns the header frame of the first call of a client to a server of plain sockets. Runs
// `serve(its socket)` before the call is cancelled.
std::string HeadersOfACall(const std::function<void(int fd)>& serve) {
  const PlainServer server;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  std::thread caller([&, channel = server.Channel()] {
    v1::GetStatusResponse response;
    v1::Admin::NewStub(channel)->GetStatus(&context, v1::GetStatusRequest(), &response);
  });
  std::string headers;
  const proto::Descriptor connection = server.Accept();
  EXPECT_EQ(Read(connection.get(), kPrefaceBytes), kPreface);
  Write(connection.get(), EmptySettings());
  while (headers.empty() && !::testing::Test::HasFailure()) {
    const std::string header = Read(connection.get(), 9);
    const std::string body = Read(connection.get(), BigEndian(header, 0, 3));
    if (static_cast<uint8_t>(header[3]) == kHeaders) headers = body;
  }
  serve(connection.get());
  context.TryCancel();
  caller.join();
  return headers;
}

// Reads everything and answers nothing, not even a ping, until the other end closes.
void ExpectToBeClosed(int fd) {
  const absl::Time begin = SteadyNow();
  char bytes[1024];
  while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
  }
  // The 4 s of client/transport/channel.h on a busy machine.
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(15));
}

// So ends a connection that lost bytes, and one that a child of a dead process holds open.
TEST(TransportSettingsTest, BothEndsCloseAConnectionThatAnswersNoPing) {
  const testing::InProcessCluster cluster(1);
  for (const std::string& address : {cluster.shard_address(0), cluster.coordinator_address()}) {
    const proto::Descriptor socket = Connect(address);
    Write(socket.get(), std::string(kPreface, kPrefaceBytes) + EmptySettings());
    ExpectToBeClosed(socket.get());
  }
  HeadersOfACall(ExpectToBeClosed);
}

TEST(TransportSettingsTest, ClientsDoNotProbeTheBandwidth) {
  HeadersOfACall([](int fd) {
    const std::string answer = Field(":status", "200") + Field("content-type", "application/grpc");
    Write(fd, Frame(kHeaders, kEndHeaders, 1, answer) + UnfinishedMessage());
    ExpectNoPingBut2Answers(fd);
  });
}

TEST(TransportSettingsTest, ClientsTakeNoCompression) {
  const std::string headers = HeadersOfACall([](int) {});
  EXPECT_THAT(headers, ::testing::HasSubstr("/kaon.v1.Admin/GetStatus"));
  EXPECT_THAT(headers, ::testing::Not(::testing::HasSubstr("gzip")));
  EXPECT_THAT(headers, ::testing::Not(::testing::HasSubstr("deflate")));
}

// This proxy does not exist, so a client that uses it cannot connect.
TEST(TransportSettingsTest, ClientsHeedNoProxyOfTheEnvironment) {
  ASSERT_EQ(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  ExpectToConnect([](int) {});
  unsetenv("http_proxy");
}

// protocol.md section 4: 1 MiB from the first read on. Servers read at most 64 KiB, so that the
// memory guard can end a connection before gRPC has parsed too much (docs/adr/0059).
TEST(TransportSettingsTest, ClientsRead1MiBAtATimeAndServersAtMost64KiB) {
  const testing::InProcessCluster cluster(1);
  reads = smaller_reads = server_reads = 0;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto channel =
      client::CreateChannel(cluster.coordinator_address(), TlsFiles(), proto::Role::kCoordinator);
  ASSERT_TRUE(channel.ok()) << channel.status();
  v1::GetStatusResponse response;
  const grpc::Status status =
      v1::Admin::NewStub(*channel)->GetStatus(&context, v1::GetStatusRequest(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  // A request at the one end and an answer at the other.
  EXPECT_GE(reads, 2);
  EXPECT_GE(smaller_reads, 1);
  EXPECT_LT(smaller_reads, reads);
  EXPECT_EQ(server_reads, smaller_reads);
}

}  // namespace
}  // namespace kaon
